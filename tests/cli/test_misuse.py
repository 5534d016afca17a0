"""What a user may do wrong, one line of shell each: the exit code, the words that help, and nothing left behind."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import dataclass
from typing import Any

import pytest
from shell import PLAIN, Shell

RUN = "millrace run --format fasta"
TEE = "millrace run --input in.fa --output o -- tee2 in.fa o"
#: Writes the manifest anew, as another release would have.
OTHER_RELEASE = (
    "$(sed -n 's/^exec \\([^ ]*\\) .*/\\1/p' ../bin/millrace) -c 'import msgspec; from pathlib import Path; from millrace.rundir.paths import RunDir; "
    'r = RunDir(Path("o.millrace")); r.write_manifest(msgspec.structs.replace(r.read_manifest(), millrace="0.0.9"))\''
)
KEPT = TEE.replace("run", "run --keep-run-dir --batch 1", 1) + " 2> first"
#: A run whose second record is put aside.
SOME = "millrace run --input in.fa --output o -- sh -c 'bad2 < $1 > $2' x in.fa o"
LOST = f"{RUN} -q --run-dir o.millrace -- bad2 < in.fa > x"
#: A run that stops at its second record when the third is done.
HOLE = f"{RUN} -q --batch 1 --slots 3 --retries 8 --on-failure stop -- bad2 < in.fa > x"
#: Writes a report page of a run.
REPORTED = "mkfifo pipe; millrace run -q --input in.fa --run-dir d --keep-run-dir -- copy in.fa > o; millrace report d"
MANY = """for i in $(seq 20000); do echo ">s$i"; echo MKVLA$i; done > many.fa"""


@dataclass(frozen=True)
class Case:
    """A line and what must come of it."""

    line: str
    code: int
    #: Words on standard error.
    says: tuple[str, ...]
    #: What standard output must be; None: anything.
    out: str | None = None
    #: Run directories that may stay, because the run can be resumed or holds quarantined records.
    left: tuple[str, ...] = ()


def case(name: str, line: str, code: int, *says: str, **more: Any) -> Any:
    return pytest.param(Case(line, code, says, **more), id=name)


def fails(name: str, line: str, *says: str, **more: Any) -> Any:
    """Refused before anything started."""
    return case(name, line, 2, *says, out=more.pop("out", ""), **more)


# fmt: off
OPTIONS = [
    fails("no_verb_shows_the_help", "millrace", "Usage: millrace", "Commands:"),
    fails("misspelt_verb_offers_the_nearest", "millrace statsu x", "no such command 'statsu'", "did you mean 'status'?"),
    fails("tool_as_verb_shows_the_line", "millrace copy in.fa", "no such command 'copy'", "millrace run -- copy in.fa"),
    fails("unknown_verb_lists_all", "millrace qqq", "no such command 'qqq'", "run, plan, status"),
    case("help_is_a_verb_too", "millrace help | head -1", 0, out="Usage: millrace [OPTIONS] COMMAND [ARGS]...\n"),
    case("help_for_a_verb", "millrace help gather | head -1", 0, out="Usage: millrace gather [OPTIONS] RUN\n"),
    case("whole_line_in_quotes", "millrace run -- 'copy in.fa x'", 4, "program not found", "without quotes", "millrace run -- copy in.fa x"),
    case("variable_before_the_tool", "millrace run -- X=1 copy in.fa", 4, "program not found", "X=1 millrace run -- copy in.fa"),
    case("alias", "alias ll='ls -l'; millrace run -- ll in.fa", 4, "program not found", "an alias or a function"),
    fails("time_before_the_tool", "millrace run -- time -p blastp -query in.fa", "time starts blastp", "write: time -p millrace run -- blastp -query in.fa"),
    fails("env_before_the_tool", "echo x | millrace run --format lines -- env A=1 hmmscan db in.fa", "env starts hmmscan", "write: env A=1 millrace run -- hmmscan db in.fa"),
    fails("shell_around_the_tool", "millrace run -- bash -c 'blastp -query in.fa -db x'", "bash starts blastp", "write: millrace run -- blastp -query in.fa -db x"),
    fails("starters_of_starters", "millrace run -- nice -n 5 env A=1 cat in.fa", "nice starts cat", "write: nice -n 5 env A=1 millrace run -- cat in.fa"),
    fails("nice_before_any_program", "millrace run -- nice -n 5 cat in.fa", "nice starts cat", "write: nice -n 5 millrace run -- cat in.fa"),
    fails("env_before_any_program", "millrace run -- env A=1 cat in.fa", "env starts cat", "write: env A=1 millrace run -- cat in.fa"),
    fails("shell_around_any_program", "millrace run -- bash -c 'cat in.fa'", "bash starts cat", "write: millrace run -- cat in.fa"),
    case("time_where_it_is_no_program", "t=$(mktemp -d); for p in sh cat; do ln -s $(command -v $p) $t; done; m=$(command -v millrace); "
         "PATH=$t $m run -- time cat in.fa", 4, "time: program not found", "write: time millrace run -- cat in.fa"),
    case("nice_before_a_filter", f"{RUN} -q -- nice sed s/r1/x/ < in.fa | head -1", 0, out=">x\n"),
    fails("pipe_around_the_tool", "millrace run -- sh -c 'blastp -query in.fa -db x | sort'", "sh starts blastp", "write: millrace run -- blastp -query in.fa -db x | sort"),
    fails("line_with_the_tool_in_it", "millrace run -- bash -c 'cd . && blastp -query in.fa; ls'", "bash starts blastp", "write: cd . && millrace run -- blastp -query in.fa; ls"),
    fails("line_of_any_programs", "millrace run -- bash -c 'cd . && cat in.fa && cat in.fa'", "bash starts cat", "run the tool by itself"),
    fails("srun_before_the_tool", "cp ../bin/copy ../bin/srun; millrace run -- srun -n 4 blastp -query in.fa", "srun starts blastp", "write: srun -n 4 millrace run -- blastp -query in.fa"),
    fails("nice_before_nothing", "millrace run -- nice -n 5 nosuchprog in.fa", "nice starts another program, and none is found on PATH", "check the name of the tool"),
    fails("quarantine_limit_word", f"{RUN} --max-quarantined many -- copy < in.fa", "--max-quarantined many", "a number (500), or a share (2%)"),
    fails("quarantine_limit_over_all", f"{RUN} --max-quarantined 101% -- copy < in.fa", "--max-quarantined 101%"),
    fails("no_command", "millrace run", "no command", "after --"),
    fails("no_command_after_dashes", "millrace run --slots 2 --", "no command", "after --"),
    fails("no_dashes_before_the_tool", "millrace run copy in.fa", "write -- before", "millrace run -- copy in.fa"),
    fails("no_dashes_keeps_our_options", "millrace run --slots 2 -q copy 'a b'", "millrace run --slots 2 -q -- copy 'a b'"),
    fails("unknown_option_offers_the_nearest", f"{RUN} --slotz 2 -- copy < in.fa", "no such option '--slotz'", "'--slots'"),
    fails("threads_are_slots", f"{RUN} --threads=4 -- copy < in.fa", "no such option '--threads'", "--slots N"),
    fails("threads_where_there_are_no_slots", "millrace gather --threads 4 x", "no such option '--threads'", "millrace gather --help"),
    fails("unknown_option_of_gather", "millrace gather --bogus x", "no such option '--bogus'", "millrace gather --help"),
    fails("slots_0", f"{RUN} --slots 0 -- copy < in.fa", "slots: expected a whole number >= 1, found 0"),
    fails("slots_negative", f"{RUN} --slots -1 -- copy < in.fa", "slots: expected a whole number >= 1, found -1"),
    fails("slots_word", f"{RUN} --slots abc -- copy < in.fa", "--slots", "'abc' is not a valid integer"),
    fails("slots_absurd", f"{RUN} --slots 999999999999 -- copy < in.fa", "slots: expected", "<= 16384"),
    fails("variable_of_no_option", f"MILLRACE_RUN_SLOT=2 {RUN} -- copy < in.fa", "MILLRACE_RUN_SLOT: sets no option of millrace run", "did you mean MILLRACE_RUN_SLOTS?"),
    fails("variable_of_an_argument", f"MILLRACE_RUN_COMMAND=x {RUN} -- copy < in.fa", "MILLRACE_RUN_COMMAND: sets no option"),
    fails("variable_like_no_option", f"MILLRACE_RUN_XYZZY=2 {RUN} -- copy < in.fa", "MILLRACE_RUN_XYZZY: sets no option", "millrace run --help names the options"),
    case("variable_of_another_verb", "MILLRACE_RUN_SLOT=2 millrace completion bash > /dev/null", 0),
    case("run_directory_that_is_removed", r"""printf '#!/bin/sh\n: > ../asked; until [ -e ../removed ]; do sleep 0.1; done; cat' > waits.sh; chmod +x waits.sh; timeout 60 sh -c 'until [ -e ../asked ]; do sleep 0.1; done; rm -rf o.millrace; : > ../removed' & millrace run --format fasta --run-dir o.millrace -- ./waits.sh < in.fa > o""",
         1, "o.millrace: the run directory was removed, and the results in it", "starts again, from the beginning"),
    fails("slots_word_in_environment", f"MILLRACE_RUN_SLOTS=zero {RUN} -- copy < in.fa", "--slots", "'zero'"),
    fails("batch_word", f"{RUN} --batch foo -- copy < in.fa", "--batch foo: not a batch size", "64K"),
    fails("batch_0", f"{RUN} --batch 0 -- copy < in.fa", "--batch 0: not a batch size", "auto"),
    fails("batch_negative", f"{RUN} --batch -5 -- copy < in.fa", "--batch -5: not a batch size"),
    fails("batch_fraction", f"{RUN} --batch 1.5 -- copy < in.fa", "--batch 1.5: not a batch size"),
    fails("batch_absurd", f"{RUN} --batch 99999999999999999999 -- copy < in.fa", "too large", "leave it out"),
    fails("verify_2", f"{RUN} --verify 2 -- copy < in.fa", "verify: expected a number <= 1.0, found 2.0"),
    fails("verify_nan", f"{RUN} --verify nan -- copy < in.fa", "verify: expected a number", "nan"),
    fails("retries_negative", f"{RUN} --retries -1 -- copy < in.fa", "retries: expected a whole number >= 0"),
    fails("record_timeout_0", f"{RUN} --record-timeout 0 -- copy < in.fa", "record-timeout: expected a number > 0.0"),
    fails("record_timeout_absurd", f"{RUN} --record-timeout 1e300 -- copy < in.fa", "record-timeout: expected a number <="),
    fails("on_failure_word", f"{RUN} --on-failure foo -- copy < in.fa", "'foo' is not one of 'quarantine', 'stop'"),
    fails("progress_word", f"{RUN} --progress foo -- copy < in.fa", "'foo' is not one of 'auto', 'bar'"),
    fails("nice_40", f"{RUN} --nice 40 -- copy < in.fa", "nice: expected a whole number <= 19, found 40"),
    fails("quiet_and_verbose", f"{RUN} -q -v -- copy < in.fa", "contradict", "give one"),
    fails("unknown_shell", "millrace completion tcsh", "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
]

JOBS = [
    fails("job_missing", "millrace run no.toml", "no.toml: No such file", "check the path"),
    fails("job_is_a_folder", "mkdir j.toml; millrace run j.toml", "j.toml: Is a directory"),
    fails("job_not_toml", "echo '[[' > j.toml; millrace run j.toml", "j.toml: not a TOML job file", "line 1", "command ="),
    fails("job_not_text", "printf '\\377\\376' > j.toml; millrace run j.toml", "j.toml: not a TOML job file", "0xff"),
    fails("job_unknown_key", "echo 'comand = \"copy\"' > j.toml; millrace run j.toml", "j.toml: unknown key 'comand'", "'command'"),
    fails("job_wrong_type", "printf 'command=\"copy\"\\nslots=\"two\"' > j.toml; millrace run j.toml",
          "j.toml: slots: expected a whole number, found 'two'"),
    fails("job_input_number", "printf 'command = \"copy in.fa\"\\ninput = 3\\n' > j.toml; millrace plan j.toml", "j.toml: input: expected a list of words"),
    fails("job_shared_number", "printf 'command = \"copy in.fa\"\\nshared = 3.5\\n' > j.toml; millrace run j.toml", "j.toml: shared: expected a list of words"),
    fails("job_command_number", "echo 'command = 5' > j.toml; millrace run j.toml", "j.toml: command: expected a list of words"),
    fails("job_empty_command", "echo 'command = \"\"' > j.toml; millrace run j.toml", "j.toml: no command"),
    fails("job_empty_program", "echo 'command = [\"\"]' > j.toml; millrace run j.toml", "first word of the command is empty"),
    fails("job_open_quotation", "echo 'command = \"copy \\\"x\"' > j.toml; millrace run j.toml", "j.toml: command: No closing quotation"),
    fails("job_batch_true", "printf 'command=\"copy\"\\nbatch=true' > j.toml; millrace run j.toml", "not a batch size"),
    fails("two_jobs", "touch j.toml; millrace run j.toml k.toml", "unexpected extra argument (k.toml)"),
    case("option_beats_job", "printf 'command=\"copy\"\\nformat=\"fasta\"\\nslots=0' > j.toml; millrace run -q --slots 1 j.toml < in.fa | cmp - in.fa", 0),
]

PROGRAMS = [
    case("program_not_found", f"{RUN} -- nosuchtool < in.fa", 4, "nosuchtool: program not found on PATH", "doctor"),
    case("program_path_wrong", f"{RUN} -- ./nosuch < in.fa", 4, "./nosuch: no such program", "check the path"),
    case("program_not_executable", f"{RUN} -- ./in.fa < in.fa", 4, "./in.fa: not executable", "chmod +x ./in.fa"),
    case("program_is_a_folder", f"{RUN} -- /tmp < in.fa", 4, "/tmp: is a folder"),
    fails("program_empty", f"{RUN} -- '' < in.fa", "first word of the command is empty"),
    case("program_without_interpreter", f"printf '#!/no/such\\n' > t; chmod +x t; {RUN} -- ./t < in.fa", 4, "cannot be started", "No such file"),
    case("path_empty", f"m=$(command -v millrace); PATH= $m {RUN[9:]} -- copy < in.fa", 4, "copy: program not found on PATH"),
    case("path_unset", f"m=$(command -v millrace); env -u PATH $m {RUN[9:]} -- copy < in.fa", 4, "copy: program not found on PATH"),
    case("program_by_relative_path", f"cp ../bin/copy tool; {RUN} -- ./tool < in.fa | cmp - in.fa", 0),
    fails("whole_input_tool", "millrace run --format lines -- sort < in.fa", "sort orders or compares the whole input", "pipe the result"),
    fails("whole_input_tool_with_file", "millrace run --input in.fa:lines -- wc -l in.fa", "wc counts or numbers", "| wc"),
]

INPUTS = [
    fails("no_input_named", "millrace run -- copy in.fa", "no input is named", "millrace run --input in.fa -- copy in.fa (with"),
    fails("no_input_named_of_two", "millrace run -- copy in.fa in.fa/ ../work/in.fa", "no input is named", "--input FILE"),
    fails("input_missing", "millrace run --input no.fa -- copy no.fa", "--input no.fa: no such file", "check the path"),
    fails("input_dangling_link", "ln -s nowhere l.fa; millrace run --input l.fa -- copy l.fa", "--input l.fa: no such file"),
    fails("input_link_in_circles", "ln -s l l; millrace run --input l -- copy l", "--input l: no such file"),
    fails("input_name_too_long", "n=$(printf %300s | tr ' ' x); millrace run --input $n -- copy $n", "File name too long"),
    fails("input_name_empty", "millrace run --input '' -- copy in.fa", "input: an empty file name", "unset variable"),
    fails("input_folder_as_fasta", "mkdir d; millrace run --input d:fasta -- copy d", "d: is a folder, not a file of records"),
    fails("input_folder_empty", "mkdir d; millrace run --input d -- copy d", "d: no files there", "glob"),
    fails("input_unreadable", f"chmod 0 in.fa; {PLAIN} millrace run --input in.fa -- copy in.fa", "in.fa: permission denied", "chmod"),
    fails("format_misspelt", "millrace run --format fastaa -- copy < in.fa", "unknown record format 'fastaa'", "did you mean 'fasta'?"),
    fails("format_misspelt_for_a_known_tool", "millrace run --format nope -- minimap2 in.fa in.fa", "unknown record format 'nope'", "formats are"),
    fails("no_input_named_of_lines", "seq 9 > n.tsv; millrace run -- copy n.tsv", "no input is named", "--format lines -- copy ... < FILE"),
    fails("no_input_named_of_sequences", "millrace run -- copy in.fa", "no input is named", "--format fasta -- copy ... < FILE"),
    fails("output_link_into_no_folder", "ln -s nowhere/out l; millrace run --input in.fa --output l -- cp in.fa l", "l: no such folder", "mkdir -p"),
    fails("output_link_in_circles", "ln -s l l; millrace run --input in.fa --output l -- cp in.fa l", "l: is a link that leads back to itself"),
    fails("report_to_standard_output", "millrace run -q --input in.fa --run-dir d --keep-run-dir -- copy in.fa > o; millrace report d -o -", "-o -: a file is needed", "report.html"),
    *(fails(f"report_at_{name}", f"{REPORTED} -o {place}", f"{place}: is {what}", "name")
      for name, place, what in [("folder", ".", "a folder"), ("root", "/", "a folder"), ("pipe", "pipe", "there, and no report")]),
    *(fails(f"empty_path_of_{line.split()[0]}_{option.strip('-=')}", f"millrace {line.format(option)}", f"{option.rstrip('=')}: an empty file name", "unset variable")
      for line, option in [("report d {} ''", "-o"), ("report d {} ''", "--multiqc"), ("report d {}", "--ro-crate="), ("gather {} '' d", "-o"),
                           ("run --input in.fa {} '' -- copy in.fa", "--run-dir")]),
    case("report_at_unwritable_place", f"{REPORTED} -o no/page.html", 1, "no/page.html: No such file", "-o", out=""),
    fails("crate_at_unwritable_place", "millrace run -q --input in.fa --run-dir d --keep-run-dir --output o -- cp in.fa o; millrace report d --ro-crate in.fa/c", "in.fa/c: Not a directory", "new folder"),
    fails("memory_of_a_job_misspelt", "millrace slurm -N 1 -t 1:00:00 --mem lots --dry-run -- copy in.fa", "--mem lots: not a size of memory", "4G"),
    fails("format_misspelt_at_input", "millrace run --input in.fa:fastaa -- copy in.fa", "unknown record format 'fastaa'", "fasta"),
    fails("format_of_stdin_unknown", "millrace run -- copy < in.fa", "standard input: its format cannot be told", "--format"),
    fails("format_of_noise_unknown", "printf '\\1\\2\\3' > x.bin; millrace run --input x.bin -- copy x.bin",
          "--input x.bin: its format cannot be told", "--format"),
    case("format_told_by_content", "cp in.fa x.bin; millrace run -q --input x.bin -- copy x.bin | cmp - in.fa", 0),
    case("input_empty", ": > e.fa; millrace run -q --input e.fa -- count e.fa other", 0, out="2\n"),
    case("input_dev_null", "millrace run -q --input /dev/null:fasta -- count /dev/null", 0, out="1\n"),
    case("input_binary_noise", "head -c 3000 /dev/zero | tr '\\0' '\\200' > b.fa; millrace run -q --input b.fa -- copy b.fa | cmp - b.fa", 0),
    case("input_with_nul_bytes", "printf '>r1\\nM\\0V\\n>r2\\n\\0\\n' > n.fa; millrace run -q --batch 1 --input n.fa -- copy n.fa | cmp - n.fa", 0),
    case("gzip_cut_off", f"{MANY}; gzip many.fa; head -c 9000 many.fa.gz > t.fa.gz; millrace run --input t.fa.gz -- nothing t.fa.gz",
         1, "t.fa.gz: the gzip data is cut off", "repair the input", left=("nothing",)),
    case("zstd_cut_off", f"{MANY}; zstd -q many.fa; head -c 9000 many.fa.zst > t.fa.zst; millrace run --input t.fa.zst -- nothing t.fa.zst",
         1, "t.fa.zst: the zstd data is cut off", "repair the input", left=("nothing",)),
    case("gzip_of_no_bytes", ": > e.fa.gz; millrace run --input e.fa.gz -- nothing e.fa.gz",
         1, "e.fa.gz: the gzip data is cut off", "repair the input", left=("nothing",)),
    case("gzip_zeros_behind", f"{MANY}; gzip -k many.fa; head -c 300000 /dev/zero >> many.fa.gz; millrace run --input many.fa.gz -- sh -c 'zcat $1' x many.fa.gz | cmp - many.fa",
         0, "many.fa.gz is compressed (gzip): sh gets its parts so, too"),
    case("gzip_members_with_zeros_between", "(gzip < in.fa; head -c 5 /dev/zero; gzip < in.fa) > t.fa.gz; millrace run -q --input t.fa.gz -- sh -c 'zcat $1' x t.fa.gz | cmp - <(cat in.fa in.fa)", 0),
    fails("fasta_of_an_old_mac", "tr '\\n' '\\r' < in.fa > m.fa; echo old > o; millrace run --input m.fa --output o -- tee2 m.fa o; c=$?; grep -q old o && exit $c",
          "m.fa:1: lines end with a carriage return alone", "tr '\\r' '\\n'", left=("o",)),
    case("fasta_of_an_old_mac_on_a_pipe", "tr '\\n' '\\r' < in.fa | millrace run --format fasta -- count",
         1, "lines end with a carriage return alone", left=("count",)),
    case("gzip_garbage_behind", "gzip in.fa; echo garbage >> in.fa.gz; millrace run --input in.fa.gz -- nothing in.fa.gz",
         1, "in.fa.gz: the gzip data", "repair the input", left=("nothing",)),
    case("fastq_without_plus", "printf '@r1\\nAC\\n+\\nII\\n@r2\\nAC\\nII\\n@r3\\nAC\\n+\\nII\\n' > r.fq; millrace run --input r.fq -- nothing r.fq",
         1, "r.fq:7: expected '+' after the sequence of r2, found 'I'", "repair", left=("nothing",)),
    case("fastq_lengths_differ", "printf '@r1\\nAC\\n+\\nIIII\\n@r2\\nAC\\n+\\nII\\n' > r.fq; millrace run --input r.fq -- nothing r.fq",
         1, "r.fq:4: the quality of r1 has 4 letters, its sequence 2", "repair"),
    case("fastq_ends_within_a_record", "printf '@r1\\nAC\\n+\\nI' > r.fq; millrace run --input r.fq -- nothing r.fq", 1, "r.fq:4: the file ends within r1",
         "repair the input and type the command again, with --fresh if"),
    fails("record_start_no_regex", "millrace run --record-start '(' -- copy < in.fa", "--record-start is no regular expression", "unclosed"),
    fails("record_start_with_fasta", f"{RUN} --record-start '^>' -- copy < in.fa", "belong to format regex, not to fasta"),
    fails("regex_without_boundaries", "millrace run --format regex -- copy < in.fa", "needs --record-start or --record-end", "'^>'"),
    case("second_input_shorter", "head -4 in.fa > b.fa; millrace run --batch 1 --input in.fa --input b.fa -- nothing in.fa b.fa",
         5, "b.fa: ends after record 2, but in.fa goes on", "same number of records", left=("nothing",)),
    case("first_input_shorter", "head -4 in.fa > b.fa; millrace run --batch 1 --input b.fa --input in.fa -- nothing b.fa in.fa",
         5, "b.fa: ends after record 2, but in.fa goes on", left=("nothing",)),
    fails("stdin_twice", f"{RUN} --input - --input - -- copy < in.fa", "--input - is given twice", "can be read once"),
    fails("stdin_named_but_not_there", f"{RUN} --input - -- copy", "nothing comes in on standard input", "< FILE"),
    fails("stdin_closed", f"exec <&-; {RUN} -- copy", "no input is named", "< FILE"),
    case("input_not_in_the_arguments", "millrace plan --input in.fa -- copy", 0),
    fails("input_spelt_otherwise", "millrace run --input in.fa -- copy ./in.fa", "the arguments spell it './in.fa'", "same way"),
    fails("input_absolute_not_in_arguments", 'millrace run --input "$PWD/in.fa" -- copy', "cannot be told of a part"),
    fails("shared_missing", "millrace run --shared no --input in.fa -- copy in.fa", "--shared no: no such file or folder"),
]

OUTPUTS = [
    fails("output_folder_missing", TEE.replace("o --", "no/o --").replace("fa o", "fa no/o"), "no/o: no such folder", "mkdir -p"),
    fails("output_under_a_file", TEE.replace("o --", "in.fa/o --").replace("fa o", "fa in.fa/o"), "in.fa is a file, not a folder"),
    fails("output_folder_not_writable", f"mkdir d; chmod 555 d; {PLAIN} millrace run --input in.fa --output d/o -- tee2 in.fa d/o",
          "d/o: the folder", "cannot be written", "elsewhere"),
    fails("output_not_writable", f"touch o; chmod 444 o; {PLAIN} {TEE}", "o: permission denied", "chmod"),
    fails("output_is_input", "millrace run --input in.fa --output in.fa -- tee2 in.fa in.fa", "in.fa is both input and output"),
    fails("output_is_input_by_link", "ln -s in.fa o; " + TEE, "o is both input and output", "another file"),
    fails("output_twice", "millrace run --input in.fa --output o --output o -- tee2 in.fa o", "--output o is given twice"),
    fails("output_twice_otherwise_spelt", "millrace run --input in.fa --output o --output ./o -- tee2 in.fa o ./o", "two outputs"),
    fails("output_name_empty", "millrace run --input in.fa --output '' -- copy in.fa", "output: an empty file name"),
    fails("output_name_too_long", "n=$(printf %300s | tr ' ' x); millrace run --input in.fa --output $n -- tee2 in.fa $n", "File name too long"),
    case("output_is_a_folder_the_tool_cannot_use", "mkdir o; " + TEE, 4, "tee2 cannot do this work", "cannot create o: Is a directory"),
    case("stdout_closed", f"{RUN} -- copy < in.fa >&-", 1, "standard output: Bad file descriptor", "resumes", left=("copy",)),
    case("stdout_closed_and_not_needed", f"{RUN} -- nothing < in.fa >&-", 0),
    case("stdout_broken_pipe_says_where_the_rest_is", f"{MANY}; {RUN} -- copy < many.fa | head -1; exit ${{PIPESTATUS[0]}}", 141, "nobody reads standard output any more; everything done so far is kept in", "rm -r", out=">s1\n", left=("copy",)),
    case("stdout_full", f"{RUN} -- copy < in.fa > ../full", 1, "no space left: standard output", "free some space", "resumes", left=("copy",)),
    case("stderr_full_does_not_matter", f"{RUN} -- copy < in.fa 2> ../full | cmp - in.fa", 0),
    case("stderr_closed_does_not_matter", f"{RUN} -- copy < in.fa 2>&- | cmp - in.fa", 0),
    case("refusal_nobody_can_read", f"{RUN} -- nosuch < in.fa 2> ../full", 4),
    case("plan_to_a_full_disk", f"millrace plan{RUN[12:]} -- copy < in.fa > ../full", 1, "standard output: No space left"),
    case("plan_to_a_closed_stdout", f"millrace plan{RUN[12:]} -- copy < in.fa >&-", 1, "standard output: Bad file descriptor"),
    case("plan_to_a_broken_pipe", f"millrace plan{RUN[12:]} -- copy < in.fa | true; exit ${{PIPESTATUS[0]}}", 141),
    case("help_to_a_broken_pipe", "millrace run --help | true; exit ${PIPESTATUS[0]}", 141),
]

JOINS = [
    fails("join_misspelt", f"{RUN} --join tsv:2 -- copy < in.fa", "--join tsv:2: no such way to join", "did you mean csv?"),
    fails("join_no_regex", f"{RUN} --join 'header:(' -- copy < in.fa", "neither a number of lines (1 to 10000) nor a regular expression"),
    fails("join_no_lines", f"{RUN} --join footer:0 -- copy < in.fa", "neither a number of lines (1 to 10000) nor a regular expression"),
    fails("join_not_utf8", f"{RUN} --join $'header:f\\xe9' -- copy < in.fa", "not UTF-8", "(?-u:"),
    fails("join_nothing_behind_the_colon", f"{RUN} --join header: -- copy < in.fa", "nothing behind the colon", "header[:N|:REGEX]"),
    fails("join_without_tag", f"{RUN} --join xml -- copy < in.fa", "--join xml: not the name of an element", "xml:TAG"),
    fails("join_with_too_much", f"{RUN} --join csv:2 -- copy < in.fa", "csv takes nothing behind it"),
    fails("join_of_no_output", TEE.replace("run", "run --join p=csv", 1), "--join p=csv: no output p", "outputs are: o, - "),
    fails("join_of_which_output", "millrace run --input in.fa --output o --output p --join csv -- copy in.fa o p", "there are 2 outputs", "--join o=csv"),
    fails("join_twice", TEE.replace("run", "run --join csv --join header", 1), "--join header: o has another: csv", "only a header and a footer, or totals, go together"),
    fails("join_of_a_folder", "mkdir d; millrace run --input in.fa --output d/ --join csv -- copy in.fa d/", "the files of d/ are kept as they are"),
    fails("join_of_a_known_tool", "millrace run --join csv -- obabel -ismi in.fa -osmi", "knows how the outputs of obabel are joined", "leave --join out"),
]

RUN_DIRS = [
    fails("run_dir_is_a_file", "touch o.millrace; " + TEE, "o.millrace: is not a folder", "--run-dir", left=("o",)),
    fails("run_dir_not_writable", f"chmod 555 .; {PLAIN} millrace run --input in.fa -- copy in.fa", "Permission denied", "--run-dir"),
    fails("run_dir_holds_foreign_files", f"mkdir o.millrace; touch o.millrace/mine; {TEE} --fresh; ls o.millrace >&2".replace(" --fresh", "")
          + f"; {TEE.replace('run', 'run --fresh', 1)}", "o.millrace: holds mine", "--run-dir", left=("o",)),
    fails("run_dir_is_here", "millrace run --run-dir . --input in.fa -- copy in.fa", "holds in.fa, which is not of a run"),
    fails("run_dir_of_another_command", f"{KEPT}; millrace run --run-dir o.millrace --input in.fa --output p -- tee2 in.fa p",
          "command: was tee2 in.fa o", "now tee2 in.fa p", "--fresh", left=("o",)),
    fails("input_changed", f"{KEPT}; echo '>r4' >> in.fa; {TEE}", "input in.fa: was 24 bytes", "now 28 bytes", "--fresh", left=("o",)),
    fails("database_changed", f"cp in.fa db; K='--shared db'; {KEPT.replace('run', 'run $K', 1)}; echo >> db; {TEE.replace('run', 'run $K', 1)}",
          "db: was 24 bytes", "now 25 bytes", left=("o",)),
    fails("program_changed", f"{KEPT}; echo >> ../bin/tee2; {TEE}", "program", "bin/tee2: was", left=("o",)),
    fails("other_release", f"{KEPT}; {OTHER_RELEASE}; {TEE}", "millrace: was 0.0.9, now", left=("o",)),
    case("manifest_of_the_future", f"{KEPT}; sed -i 's/\"version\": 1/\"version\": 7/' o.millrace/job.json; {TEE}",
         5, "job.json: version 7, this release reads version 1", "--fresh", left=("o",)),
    case("manifest_not_json", f"{KEPT}; echo '{{' > o.millrace/job.json; {TEE}", 5, "job.json: not the manifest of a run", "--fresh", left=("o",)),
    *(case(f"damaged_{name}_{how}", f"{KEPT}; {line.format(name=name)}; {TEE}", 5, f"{name}: not", "--fresh", left=("o",))
      for name in ("job.json", "complete.json")
      for how, line in (("byte", "sed -i 's/\\(run_id\": \"\\)[0-9a-e]/\\1f/; t; s/\\(run_id\": \"\\)f/\\1e/' o.millrace/{name}"),
                        ("utf8", "printf '{{\"run_id\": \"\\377\"}}' > o.millrace/{name}"),
                        ("cut", "truncate -s 30 o.millrace/{name}"),
                        ("folder", "rm o.millrace/{name}; mkdir o.millrace/{name}"))),
    case("end_of_another_run", f"{KEPT}; cp o.millrace/complete.json c; {KEPT.replace('--keep', '--fresh --keep')}; cp c o.millrace/complete.json; rm c; {TEE}",
         5, "complete.json: is of another run", "--fresh", left=("o",)),
    *(case(f"fresh_with_a_folder_for_{name}", f"{KEPT}; rm -f o.millrace/{name}; mkdir -p o.millrace/{name}/x; {TEE.replace('run', 'run --fresh -q', 1)}; cmp o in.fa", 0)
      for name in ("job.json", "complete.json", "journal.mrj", "events.jsonl", "lock")),
    case("folder_for_the_journal", f"{KEPT}; rm o.millrace/complete.json o.millrace/journal.mrj; mkdir o.millrace/journal.mrj; {TEE}", 5, "journal.mrj", "--fresh", left=("o",)),
    fails("folder_for_the_lock", f"{KEPT}; rm o.millrace/lock; mkdir o.millrace/lock; {TEE}", "lock: is a folder", "--fresh", left=("o",)),
    *(case(f"fresh_with_a_{how}_for_{name}", f"{KEPT}; rm -rf o.millrace/{name}; {line} o.millrace/{name}; {TEE.replace('run', 'run --fresh -q', 1)}; cmp o in.fa", 0)
      for name, how, line in (("lock.taking", "folder", "mkdir"), ("lock.taking", "link", "ln -s nowhere"), ("lock", "link", "ln -s /nowhere/x"),
                              ("job.json", "pipe", "mkfifo"), ("earlier", "file", "touch"))),
    fails("folder_where_the_lock_is_taken", f"{KEPT}; mkdir o.millrace/lock.taking; {TEE}", "lock.taking: is a folder", "--fresh", left=("o",)),
    case("pipe_where_the_lock_is_taken", f"{KEPT}; mkfifo o.millrace/lock.taking; {TEE}; cmp o in.fa", 0, left=("o",)),
    case("events_a_link_to_nowhere", f"{KEPT}; rm o.millrace/complete.json o.millrace/events.jsonl; ln -s /nowhere/x o.millrace/events.jsonl; {TEE}", 5, "events.jsonl: is a link", "--fresh", left=("o",)),
    *(case(f"{how}_where_the_end_is_written", f"{KEPT}; rm o o.millrace/complete.json; {line} o.millrace/complete.json.new; {TEE}; cmp o in.fa", 0, left=("o",))
      for how, line in (("folder", "mkdir"), ("link", "ln -s /nowhere/x"))),
    case("events_a_pipe", f"{KEPT}; rm o.millrace/complete.json o.millrace/events.jsonl; mkfifo o.millrace/events.jsonl; {TEE}", 5, "events.jsonl: is a pipe", "--fresh", left=("o",)),
    *(case(f"journal_a_{how}", f"{KEPT}; rm o.millrace/complete.json o.millrace/journal.mrj; {line} o.millrace/journal.mrj; {TEE}",
           5, "journal.mrj: is not a file", "--fresh", left=("o",))
      for how, line in (("pipe", "mkfifo"), ("link", "ln -s /nowhere/x"))),
    case("manifest_a_pipe", f"{KEPT}; rm o.millrace/job.json; mkfifo o.millrace/job.json; {TEE}", 5, "job.json: not the manifest", "--fresh", left=("o",)),
    *(case(f"{name}_for_the_folder_of_failed_records", f"{LOST} 2> first; rm -r o.millrace/quarantine; {line} o.millrace/quarantine; {LOST.replace('-q', '-q --retry-quarantined', 1)}",
           5, "o.millrace/quarantine: is not the folder of failed records", "remove it", "--fresh", left=("o",))
      for name, line in (("file", "touch"), ("link", "ln -s .."))),
    *(case(f"{name}_of_what_failed", f"{SOME} 2> first; {line} o.millrace/events.jsonl; {SOME}", 3, "already done", "--fresh", left=("o",))
      for name, line in (("no_events", "rm"), ("events_lost", "sed -i /quarantined/d"))),
    case("killed_in_its_last_moment", f": > .o.millrace.done; {TEE}; [ ! -e .o.millrace.done ]", 0),
    case("fresh_starts_over_whatever_is_there", f"{KEPT}; rm o; echo '{{' > o.millrace/job.json; {TEE.replace('run', 'run --fresh -q', 1)}; cmp o in.fa", 0),
    case("journal_is_garbage", f"{KEPT}; rm o; head -c 500 /dev/zero > o.millrace/journal.mrj; {TEE}",
         5, "journal.mrj: not a Millrace journal", "--fresh", left=("o",)),
    case("journal_of_another_run", f"{KEPT}; cp o.millrace/journal.mrj j; rm -r o o.millrace; {KEPT}; rm o; cp j o.millrace/journal.mrj; {TEE}",
         5, "journal.mrj: belongs to another run", "--fresh", left=("o",)),
    case("journal_version_2", f"{KEPT}; rm o; printf '\\2' | dd of=o.millrace/journal.mrj bs=1 seek=8 conv=notrunc status=none; {TEE}",
         5, "journal version 2, this release reads version 1", "--fresh", left=("o",)),
    case("journal_of_10_bytes", f"{KEPT}; rm o; truncate -s 10 o.millrace/journal.mrj; {TEE}", 5, "journal.mrj: not a Millrace journal", left=("o",)),
    case("damaged_result_is_named_and_computed_again", f"{KEPT}; rm o; sed -i s/MAA/MAC/ o.millrace/journal.mrj; {TEE} && cmp o in.fa", 0,
         "records 2 to 2", "wrong checksum", "computed again"),
]

#: What every task would read, and the first would take from all others.
PIPES = [
    fails("pipe_as_an_argument", "bash -c 'millrace run -q --format fasta --input in.fa --verify 0 -- grep -f <(cat in.fa) in.fa'", "/dev/fd/63: is a pipe", "into a file"),
    fails("pipe_behind_an_option", "bash -c 'millrace run -q --format fasta --input in.fa --verify 0 -- grep --file=<(cat in.fa) in.fa'", "is a pipe", "into a file"),
    fails("pipe_with_a_name", "mkfifo p; millrace run -q --input in.fa --verify 0 -- grep -f p in.fa; e=$?; rm p; exit $e", "p: is a pipe"),
    fails("pipe_that_is_shared", "bash -c 'millrace run -q --input in.fa --verify 0 --shared <(cat in.fa) -- copy in.fa'", "is a pipe"),
    fails("pipe_for_a_known_tool", "bash -c 'millrace run -q -- blastp -query in.fa -subject <(cat in.fa) -outfmt 6'", "is a pipe"),
    fails("standard_input_that_is_not_cut", "millrace run -q --input in.fa --verify 0 -- grep -f - in.fa < in.fa", "- in its arguments may be standard input", "< /dev/null"),
    case("pipe_to_write_to", "bash -c 'millrace run -q --input in.fa --output o --verify 0 -- tee2 in.fa o /dev/fd/7 7> >(cat)'", 0),
]

OTHER_VERBS = [
    fails("status_without_a_run", "millrace status .", ".: no run here", ".millrace folder"),
    fails("status_of_nothing", "millrace status no", "no: no run here", ".millrace folder"),
    fails("status_of_a_file", "millrace status in.fa", "in.fa: no run here", "millrace runs lists"),
    fails("status_without_argument", "millrace status", "no run directory in this folder", "millrace runs lists"),
    fails("split_without_arguments", "millrace db split", "missing argument 'DATABASE'", "millrace db split --help"),
    fails("split_without_a_folder", "millrace db split x 2", "missing option '-o'"),
    fails("split_of_nothing", "millrace db split no 2 -o d", "there is no BLAST database no", "without an ending"),
    fails("split_of_a_file", "millrace db split in.fa 2 -o d", "there is no BLAST database in.fa"),
    fails("split_into_no_number", "millrace db split in.fa auto -o d", "auto: neither a number of fragments nor a size"),
    fails("split_into_0", "millrace db split in.fa 0 -o d", "0: neither a number of fragments nor a size"),
    fails("split_unknown_verb", "millrace db spilt x", "no such command 'spilt'"),
    fails("gather_without_a_run", "millrace gather .", ".: no run here"),
    fails("gather_of_nothing", "millrace gather no", "no: no run here"),
    fails("report_without_a_run", "millrace report .", ".: no run here"),
    fails("report_of_nothing", "millrace report no", "no: no run here"),
    fails("gather_needs_a_stream", f"{KEPT}; millrace gather o.millrace", "several outputs", "--stream: o, stdout", left=("o",)),
    fails("gather_unknown_stream", f"{KEPT}; millrace gather --stream x o.millrace", "--stream x: no such output", "o, stdout", left=("o",)),
    fails("gather_into_a_folder", f"{KEPT}; millrace gather --stream o o.millrace -o .", ".:", "directory", "-o", left=("o",)),
    fails("gather_into_nowhere", f"{KEPT}; millrace gather --stream o o.millrace -o no/x", "no/x:", "No such file", left=("o",)),
    case("output_to_a_device_of_an_ordinary_user", f"{PLAIN} {RUN.replace('--format fasta', '-q --input in.fa --output /dev/null')} -- tee2 in.fa /dev/null", 0, out=""),
    case("output_to_standard_output_by_name", f"{PLAIN} millrace run -q --input in.fa --output /dev/stdout -- tee2 in.fa /dev/stdout", 0, out=">r1\nMKV\n>r2\nMAA\n>r3\nMLL\n"),
    case("output_to_standard_output_by_number", f"{PLAIN} millrace run -q --input in.fa --output /proc/self/fd/1 -- tee2 in.fa /proc/self/fd/1 > o; cat o", 0, out=">r1\nMKV\n>r2\nMAA\n>r3\nMLL\n", left=("o",)),
    case("run_dir_where_nothing_can_be_made", f"{PLAIN} millrace run -q --run-dir /proc/x/y --input in.fa --output o -- tee2 in.fa o", 2, "/proc/x/y: cannot be made there", "--run-dir"),
    case("gather_unfinished", "head -4 in.fa > two.fa; millrace run -q --batch 1 --on-failure stop --slots 1 --format fasta -- bad2 < two.fa > x; millrace gather bad2*",
         1, "has not come to its end: nothing after record 1", out=">r1\nMKV\n", left=("bad2",)),
    case("gather_up_to_the_first_gap", f"{HOLE}; millrace gather bad2*", 1, "records 2 to 2 are missing", "nothing after record 1", out=">r1\nMKV\n", left=("bad2",)),
    case("gather_what_there_is", f"{HOLE}; millrace gather --ignore-errors bad2*", 1, "records 2 to 2 are missing", "nothing after record 3", out=">r1\nMKV\n>r3\nMLL\n", left=("bad2",)),
    case("gather_damaged", f"{KEPT}; sed -i s/MAA/MAC/ o.millrace/journal.mrj; millrace gather --stream o o.millrace",
         5, "records 2 to 2", "wrong checksum", "records 2 to 2 are missing", "--ignore-errors", out="", left=("o",)),
    case("gather_damaged_salvages_the_rest", f"{KEPT}; sed -i s/MAA/MAC/ o.millrace/journal.mrj; millrace gather --ignore-errors --stream o o.millrace",
         5, "records 2 to 2 are missing", out=">r1\nMKV\n>r3\nMLL\n", left=("o",)),
    case("status_of_a_garbage_journal", f"{KEPT}; echo x > o.millrace/journal.mrj; millrace status o.millrace", 5, "not a Millrace journal", "--fresh", left=("o",)),
    case("gather_of_a_garbage_journal", f"{KEPT}; echo x > o.millrace/journal.mrj; millrace gather --stream o o.millrace",
         5, "not a Millrace journal", "--fresh", left=("o",)),
]

TOOLS = [
    case("tool_says_noise", f"{RUN} -- noise < in.fa", 0, "noise: \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} warn?ing"),
    case("tool_fails_with_noise", f"{RUN} -- noisyfail < in.fa", 4, "noisyfail cannot do this work: exit status 9", "bad? news"),
    case("tool_writes_no_output", TEE.replace("tee2", "nothing"), 4, "exit status 0, but it did not write o"),
    case("tool_crashes_on_one_record", f"{RUN} -- segv2 < in.fa", 3, "quarantined record 2 (r2): killed by SIGSEGV", "--retry-quarantined",
         out=">r1\nMKV\n>r3\nMLL\n", left=("segv2",)),
    case("tool_crashes_on_every_record", f"{RUN} -- segv < in.fa", 4, "segv cannot do this work: killed by SIGSEGV"),
    case("tool_hangs_on_one_record", f"{RUN} --batch 1 --retries 0 --record-timeout 20 -- hang2 < in.fa", 3, "quarantined record 2 (r2): took longer than 20 s a record",
         out=">r1\nMKV\n>r3\nMLL\n", left=("hang2",)),
    case("tool_fails_and_the_user_wants_no_failures", f"{RUN} --on-failure stop -- bad2 < in.fa", 1,
         "record 2 (r2) failed: exit status 7", "cannot do r2", "--on-failure quarantine", left=("bad2",)),
    case("database_missing_is_found_out_in_a_few_tries", f"{MANY}; {RUN} --slots 2 -- nodb < many.fa; c=$?; [ $(wc -l < ../count) -le 8 ] && exit $c", 4,
         "nodb cannot do this work: exit status 2", "database nr not found"),
    case("quarantine_shows_the_command", f"{RUN} -q -- bad2 < in.fa > x; sh *.millrace/quarantine/record-2/command.sh", 7, "cannot do r2", left=("bad2",)),
]

NAMES = [
    case("name_with_spaces_and_quotes", "d=\"a 'b\\\"\"; mkdir \"$d\"; cp in.fa \"$d/x y.fa\"; millrace run -q --input \"$d/x y.fa\" -- copy \"$d/x y.fa\" | cmp - in.fa", 0),
    case("name_with_newline", "n=$'a\\nb.fa'; cp in.fa \"$n\"; millrace run -q --input \"$n\" --output \"$n.o\" -- tee2 \"$n\" \"$n.o\"; cmp in.fa \"$n.o\"", 0),
    case("name_not_utf8", "n=$'caf\\xe9.fa'; cp in.fa \"$n\"; millrace run -q --input \"$n\" --output \"$n.o\" -- tee2 \"$n\" \"$n.o\"; cmp in.fa \"$n.o\"", 0),
    case("name_not_utf8_in_every_verb", "n=$'caf\\xe9.fa'; cp in.fa \"$n\"; set -- --keep-run-dir --input \"$n\" --output o -- tee2 \"$n\" o; "
         "set -e; millrace run \"$@\"; millrace run \"$@\"; for v in run plan; do millrace $v --json \"$@\" > j; done; millrace status o.millrace;"
         "millrace status --json o.millrace; millrace report o.millrace; millrace report --json o.millrace; millrace gather --stream o o.millrace -o p; cmp p in.fa",
         0, left=("o",)),
    case("name_not_utf8_lies_about", "touch $'caf\\xe9'; millrace run -q --input in.fa -- copy in.fa | cmp - in.fa", 0),
    fails("name_not_utf8_missing", "n=$'caf\\xe9'; millrace run --input \"$n\" -- copy \"$n\"", "no such file"),
    fails("option_not_utf8", "millrace run $'--sl\\xe9ts' 2 -- copy", "no such option"),
    fails("verb_not_utf8", "millrace $'r\\xe9n'", "no such command"),
    fails("record_start_not_utf8", "millrace run --record-start $'f\\xe9' -- copy < in.fa", "--record-start and --record-end: not UTF-8"),
    case("name_with_leading_dash", "cp in.fa ./-i; millrace run -q --input ./-i --output ./-o -- tee2 ./-i ./-o; cmp ./-o in.fa", 0),
    case("arguments_with_equals", "millrace run -q --batch 3 --format fasta -- args --a=b=c x= '' = < in.fa", 0, out="--a=b=c\nx=\n\n=\n"),
    case("output_behind_equals", "millrace run -q --input in.fa:fasta --output o -- dd status=none if=in.fa of=o; cmp o in.fa", 0),
    case("very_many_arguments", "millrace run -q --format fasta --batch 3 -- count $(seq 20000) < in.fa", 0, out="20000\n"),
    case("very_long_argument", "millrace run -q --format fasta --batch 3 -- count $(printf %130000s | tr ' ' x) < in.fa", 0, out="1\n"),
]

SURROUNDINGS = [
    fails("cwd_removed", f"mkdir d; cd d; rmdir ../d; {RUN} -- copy < ../work/in.fa 2>&1 || {RUN} -- copy < $MARK/work/in.fa",
          "working folder does not exist", "cd to one", out=None),
    case("home_unset", f"unset HOME; {RUN} -q -- copy < in.fa | cmp - in.fa", 0),
    case("tmpdir_not_writable", f"mkdir t; chmod 555 t; TMPDIR=$PWD/t {PLAIN} {RUN} -q -- copy < in.fa | cmp - in.fa", 0),
    case("input_from_a_named_pipe", "mkfifo f; (cat in.fa > f &); millrace run -q --input f:fasta --output o -- tee2 f o; cmp o in.fa", 0),
    case("output_to_dev_null", "millrace run -q --input in.fa --output /dev/null -- tee2 in.fa /dev/null", 0),
]


# fmt: on


@pytest.mark.parametrize(
    "wanted",
    [
        *OPTIONS,
        *JOBS,
        *PROGRAMS,
        *INPUTS,
        *OUTPUTS,
        *PIPES,
        *JOINS,
        *RUN_DIRS,
        *OTHER_VERBS,
        *TOOLS,
        *NAMES,
        *SURROUNDINGS,
    ],
)
def test_misuse(shell: Shell, wanted: Case, request: pytest.FixtureRequest) -> None:
    need_what_the_line_names(wanted.line)
    if "../full" in wanted.line:
        (shell.root / "full").symlink_to(request.getfixturevalue("full_disk"))
    ended = shell.run(wanted.line)
    shell.work.chmod(0o755)
    assert "Traceback" not in ended.err + ended.out, ended.shown
    assert ended.code == wanted.code, ended.shown
    for words in wanted.says:
        assert words in ended.err, f"not said: {words}\n{ended.shown}"
    if wanted.out is not None:
        assert ended.out == wanted.out, ended.shown
    left = [name for name in shell.run_dirs() if not name.startswith(wanted.left or ("\0",))]
    assert not left, f"run directories left: {left}\n{ended.shown}"


def need_what_the_line_names(line: str) -> None:
    """Skip, by name, where the machine lacks what the line needs."""
    for program in ("setpriv", "zstd", "obabel"):
        if program in line and not shutil.which(program):
            pytest.skip(f"{program} is not installed")


def test_terminal_as_standard_input_is_not_read(shell: Shell) -> None:
    ended = shell.run(f"python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)' {RUN} -- copy")
    assert ended.code == 2, ended.shown
    assert "no input is named" in ended.out, ended.shown


def test_running_run_is_not_disturbed(shell: Shell) -> None:
    line = f"{RUN} --run-dir r -- slow < in.fa"
    ended = shell.run(
        f"{line} 2> said & p=$!; until [ -s r/journal.mrj ]; do sleep 0.1; done; "
        f"{line}; echo code $?; millrace status r; kill -TERM $p; "
        "until grep -q 'no more work is handed out' said; do sleep 0.1; done; kill -TERM $p; wait $p; code=$?; "
        "cat said >&2; exit $code"
    )
    assert ended.code == 143, ended.shown
    assert "code 2" in ended.out and "r: running" in ended.out, ended.shown
    assert "is running this now" in ended.err and "millrace status" in ended.err, ended.shown
    assert "stopped by SIGTERM" in ended.err and "it resumes" in ended.err, ended.shown


def test_compressed_bytes_are_no_lines_of_an_old_mac(shell: Shell) -> None:
    """Time and contents of a gzip file have carriage returns by chance, and no line feed."""
    texts = (f">r\n{'MKV' * n}\n".encode() for n in range(1, 500))
    packed = next(each for text in texts if b"\n" not in (each := gzip.compress(text, mtime=0x0D0D0D0D)))
    (shell.work / "t.fa.gz").write_bytes(packed)
    ended = shell.run("millrace run -q --input t.fa.gz -- sh -c 'zcat $1' x t.fa.gz | cmp - <(zcat t.fa.gz)")
    assert ended.code == 0, ended.shown
