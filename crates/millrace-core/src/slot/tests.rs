//! Slots with real processes: shell scripts that do what tools do at their worst.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::links::MOST_FILES;
use super::*;

/// Keeps what a task wrote: (stream, name, bytes).
struct Keep;

type Kept = Vec<(u16, Vec<u8>, Vec<u8>)>;

impl Sink for Keep {
    type Receipt = Kept;

    fn doubt(&self, _: &Task, stderr: &[u8]) -> Option<String> {
        stderr.starts_with(b"lies").then(|| "it lies".to_owned())
    }

    fn steady(&self, _: u16, bytes: Vec<u8>) -> Vec<u8> {
        bytes
    }

    fn commit(&self, _: &Task, outputs: Vec<(u16, Vec<u8>, File)>) -> Result<Kept, Failure> {
        let read = |(stream, name, mut file): (u16, Vec<u8>, File)| {
            let mut bytes = vec![];
            file.rewind()?;
            file.read_to_end(&mut bytes)?;
            Ok((stream, name, bytes))
        };
        outputs.into_iter().map(read).collect::<io::Result<_>>().map_err(Failure::Io)
    }
}

struct Bench {
    folder: TempDir,
    settings: Settings,
}

impl Bench {
    /// One slot for `/bin/sh -c`.
    fn new() -> Self {
        let folder = TempDir::with_prefix("secret-").unwrap();
        let secret = folder.path().file_name().unwrap().as_encoded_bytes().to_vec();
        let root = folder.path().join("slot-0");
        fs::create_dir_all(root.join("cwd/kept")).unwrap();
        let settings = Settings {
            roots: vec![root],
            directory: "cwd".into(),
            skeleton: HashSet::from(["cwd".into(), "cwd/kept".into()]),
            links: Links::default(),
            view: None,
            exe: c"/bin/sh".into(),
            environ: vec![b"PATH=/usr/bin:/bin".into()],
            namespaces: Arc::default(),
            nice: 0,
            ok_statuses: vec![],
            kills: None,
            slot_mark: b"\0slot\0".to_vec(),
            secret,
            patience: Duration::from_millis(300),
            still_limit: None,
            substitutions: vec![(b"\0slot\0/cwd".to_vec(), b"/home/me".to_vec())],
            counts_calls: false,
            reread_suffix: vec![],
            records: None,
        };
        Self { folder, settings }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn pool(&self) -> Pool<Kept> {
        Pool::new(&self.settings, Arc::new(Keep)).unwrap()
    }

    fn run(&self, task: Task) -> Outcome<Kept> {
        let pool = self.pool();
        pool.submit(task, false);
        ended(&pool)
    }

    fn shell(&self, script: &str) -> Outcome<Kept> {
        let outcome = self.run(script_task(script));
        // Whatever happened, the slot is as it was.
        assert_eq!(names(&self.settings.roots[0]), ["cwd"]);
        assert_eq!(names(&self.settings.roots[0].join("cwd")), ["kept"]);
        outcome
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut found: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    found
}

fn script_task(script: &str) -> Task {
    Task {
        id: 1,
        exe: None,
        argv: vec![b"sh".to_vec(), b"-c".to_vec(), script.into()],
        placements: vec![],
        outputs: vec![Output { stream: 0, collect: Collect::Stdout, name: vec![], optional: false }],
        substitutions: vec![],
        timeout: None,
        cpu_limit: None,
        alone: false,
        warm: false,
        own_folder: None,
    }
}

fn ended(pool: &Pool<Kept>) -> Outcome<Kept> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        for event in pool.events(Duration::from_millis(100)) {
            if let Event::Ended { outcome, .. } = event {
                return *outcome;
            }
        }
    }
    panic!("the task did not end");
}

fn stdout(outcome: &Outcome<Kept>) -> String {
    String::from_utf8(outcome.result.as_ref().expect("done")[0].2.clone()).unwrap()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn exit_status_signal_and_words_are_told_apart() {
    let bench = Bench::new();
    assert_eq!(stdout(&bench.shell("echo out; echo err >&2")), "out\n");
    let failed = bench.shell("echo why >&2; exit 7");
    assert!(matches!(failed.result, Err(Failure::Ended(Ending::Exited(7)))), "{:?}", failed.result);
    assert_eq!(failed.stderr, b"why\n");
    let silent = bench.shell("echo only on stdout; exit 1");
    assert_eq!(silent.stderr, b"only on stdout\n");
    let killed = bench.shell("kill -SEGV $$");
    assert!(matches!(killed.result, Err(Failure::Ended(Ending::Signalled(libc::SIGSEGV)))), "{:?}", killed.result);
    let liar = bench.shell("echo lies >&2");
    assert!(matches!(liar.result, Err(Failure::Said(_))));
}

#[test]
fn a_task_that_computes_for_too_long_is_ended_and_one_that_waits_is_not() {
    let bench = Bench::new();
    let cpu_limit = Some(Duration::from_millis(500));
    let outcome = bench.run(Task { cpu_limit, ..script_task("while :; do :; done") });
    assert!(matches!(outcome.result, Err(Failure::TimedOut)), "{:?}", outcome.result);
    let outcome = bench.run(Task { outputs: vec![], cpu_limit, ..script_task("sleep 3") });
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
}

#[test]
fn reads_and_writes_of_children_are_counted_and_of_what_outlives_the_tool() {
    let bench = Bench::new();
    let script = "head -c 300000 /dev/zero | cat > /dev/null; (sleep 0.3; head -c 500000 /dev/zero > /dev/null) &";
    let outcome = bench.run(Task { outputs: vec![], ..script_task(script) });
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    let io = outcome.usage.io;
    assert!((1_100_000..1_300_000).contains(&io.read_bytes), "{io:?}");
    assert!((1_100_000..1_200_000).contains(&io.written_bytes), "{io:?}");
    assert_eq!((io.n_hidden, outcome.files), (0, None));
}

#[test]
fn calls_are_counted_for_each_file_by_the_name_that_the_user_knows() {
    let mut bench = Bench::new();
    bench.settings.counts_calls = true;
    let read = bench.file("read", &"line\n".repeat(20_000));
    // sort reads and writes by streams of the C library, dd by calls of a size.
    let script = format!(
        "sort {0} > kept/sorted; dd if={0} of=kept/copy bs=1000 2> /dev/null; dd if={0} bs=100 skip=5 count=1 2> /dev/null",
        read.display()
    );
    let outcome = bench.shell(&script);
    let profile = outcome.files.unwrap();
    let of = |name: &str| {
        let found = profile.files.iter().find(|file| file.path.ends_with(name.as_bytes()));
        found.unwrap_or_else(|| panic!("{name}: {:?}", profile.files)).clone()
    };
    let copy = of("/home/me/kept/copy");
    assert_eq!((copy.written.calls, copy.written.bytes, copy.written.jumps, copy.opens), (100, 100_000, 0, 1));
    assert_eq!(copy.written.sizes, [0, 100, 0, 0, 0, 0]);
    let input = of("/read");
    assert_eq!(input.read.bytes, 200_100, "{input:?}");
    assert!(input.opens == 3 && input.seeks >= 1 && input.read.calls > 100 && input.read.nanoseconds > 0, "{input:?}");
    assert_eq!(of("/home/me/kept/sorted").written.bytes, 100_000);
    assert!(profile.n_processes >= 4 && profile.n_streamless == 0 && profile.n_lost == 0, "{profile:?}");
    let again = bench.shell("echo out").files.unwrap();
    assert!(again.files.iter().all(|file| !file.path.ends_with(b"copy")), "each task has its own: {again:?}");
}

#[test]
fn a_timeout_kills_the_whole_group() {
    let bench = Bench::new();
    let pids = bench.file("pids", "");
    let script = format!("(sleep 1000 & echo $! >> {0}; wait) & echo $! >> {0}; echo $$ >> {0}; wait", pids.display());
    let begun = Instant::now();
    let outcome = bench.run(Task { timeout: Some(Duration::from_millis(800)), ..script_task(&script) });
    assert!(matches!(outcome.result, Err(Failure::TimedOut)), "{:?}", outcome.result);
    assert!(begun.elapsed() < Duration::from_secs(60));
    let pids = fs::read_to_string(pids).unwrap();
    assert_eq!(pids.lines().count(), 3, "the script had time to start");
    wait_until("a grandchild lives on", || !pids.lines().any(is_alive));
}

#[test]
fn what_stands_still_is_ended_with_all_that_it_has_started() {
    let mut bench = Bench::new();
    bench.settings.still_limit = Some(Duration::from_millis(300));
    let pids = bench.file("pids", "");
    let note = format!("echo $$ >> {}", pids.display());
    for script in [
        format!("{note}; exec sleep 1000"),
        format!("(sh -c '{note}; exec sleep 1000' & wait) & {note}; wait"),
        format!("{note}; sh -c '{note}; exec sleep 1000' | cat"),
    ] {
        let outcome = bench.shell(&script);
        assert!(matches!(outcome.result, Err(Failure::StoodStill(_))), "{script}: {:?}", outcome.result);
        let pids = fs::read_to_string(&pids).unwrap();
        assert!(!pids.is_empty() && !pids.lines().any(is_alive), "{script}");
    }
}

#[test]
fn what_computes_or_waits_for_others_does_not_stand_still() {
    let mut bench = Bench::new();
    bench.settings.still_limit = Some(Duration::from_millis(100));
    let count = "i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done; echo done";
    assert_eq!(stdout(&bench.shell(count)), "done\n");
    assert_eq!(stdout(&bench.shell(&format!("sh -c '{count}' | cat"))), "done\n");
    // Somebody has stopped it, who will let it go on.
    assert_eq!(stdout(&bench.shell("(sleep 1; kill -CONT $$) & kill -STOP $$; echo done")), "done\n");
}

/// Where the kernel has a parent wait as for a disk (state D) until its child has ended.
const WAIT_IN_KERNEL: &str = "import ctypes, os, platform, time\n\
    number = 56 if platform.machine() == 'x86_64' else 220\n\
    if ctypes.CDLL(None).syscall(number, 0x4000 | 17, 0, 0, 0, 0) == 0:\n    time.sleep(1)\n    os._exit(0)\n\
    print('done')\n";

#[test]
fn what_waits_in_the_kernel_does_not_stand_still() {
    let mut bench = Bench::new();
    bench.settings.still_limit = Some(Duration::from_millis(100));
    let script = bench.file("wait.py", WAIT_IN_KERNEL);
    assert_eq!(stdout(&bench.shell(&format!("python3 {}", script.display()))), "done\n");
}

#[test]
fn what_a_tool_started_and_did_not_wait_for_is_part_of_its_result() {
    let mut bench = Bench::new();
    // What counts may have no processor for a while.
    bench.settings.patience = Duration::from_secs(60);
    let gate = bench.file("gate", "");
    let count = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
    for start in ["", "setsid", "env -i setsid"] {
        let late = format!("{start} sh -c '{count}; cat {}; echo late' & echo early", gate.display());
        assert_eq!(stdout(&bench.shell(&late)), "early\nlate\n", "{start}");
    }
    let twice = bench.shell("(setsid sh -c '(sleep 0.2; echo late) & echo first' &); echo early");
    assert!(stdout(&twice).ends_with("late\n"));
}

#[test]
fn what_does_nothing_any_more_is_named_and_killed() {
    let bench = Bench::new();
    for start in ["", "setsid", "env -i setsid"] {
        let pid = bench.file("pid", "");
        let outcome = bench.shell(&format!("{start} sh -c 'echo $$ > {}; exec sleep 1000' & sleep 0.1", pid.display()));
        let Err(Failure::Said(words)) = &outcome.result else { panic!("{start}: {:?}", outcome.result) };
        let pid = fs::read_to_string(pid).unwrap();
        assert!(words.contains(&format!("sleep (process {})", pid.trim())), "{words}");
        assert!(!is_alive(&pid), "{start}");
    }
}

#[test]
fn what_a_tool_that_failed_leaves_is_killed_at_once() {
    let bench = Bench::new();
    let pid = bench.file("pid", "");
    let left = format!("setsid sh -c 'echo $$ > {}; while :; do :; done' &", pid.display());
    for (end, timeout) in [("exit 3", None), ("kill -9 $$", None), ("sleep 1000", Some(Duration::from_millis(500)))] {
        fs::write(&pid, "").unwrap();
        let wait = format!("while ! [ -s {} ]; do sleep 0.01; done", pid.display());
        let outcome = bench.run(Task { timeout, ..script_task(&format!("{left} {wait}; {end}")) });
        assert!(matches!(outcome.result, Err(Failure::Ended(_) | Failure::TimedOut)), "{:?}", outcome.result);
        assert!(!is_alive(&fs::read_to_string(&pid).unwrap()), "{end}");
    }
}

#[test]
fn what_a_tool_leaves_at_work_has_its_time_and_can_be_killed() {
    let bench = Bench::new();
    let pid = bench.file("pid", "");
    let left = format!("setsid sh -c 'echo $$ > {}; while :; do :; done' &", pid.display());
    let late = bench.run(Task { timeout: Some(Duration::from_millis(900)), ..script_task(&left) });
    assert!(matches!(late.result, Err(Failure::TimedOut)), "{:?}", late.result);
    assert!(!is_alive(&fs::read_to_string(&pid).unwrap()));
    fs::write(&pid, "").unwrap();
    let pool = bench.pool();
    pool.submit(script_task(&left), false);
    wait_until("nothing starts", || fs::read_to_string(&pid).is_ok_and(|text| !text.is_empty()));
    std::thread::sleep(Duration::from_millis(50));
    pool.kill_all();
    assert!(matches!(ended(&pool).result, Err(Failure::Killed)));
    assert!(!is_alive(&fs::read_to_string(&pid).unwrap()));
}

#[test]
fn what_ends_by_itself_after_a_kill_is_not_counted() {
    let bench = Bench::new();
    let (leader, gate) = (bench.file("leader", ""), bench.folder.path().join("gate"));
    let script = format!(
        "setsid sh -c 'while ! [ -e {1} ]; do :; done; echo half' & echo $$ > {0}",
        leader.display(),
        gate.display()
    );
    for _ in 0..3 {
        let _ = fs::remove_file(&gate);
        fs::write(&leader, "").unwrap();
        let pool = bench.pool();
        pool.submit(script_task(&script), false);
        wait_until("the tool does not end", || {
            fs::read_to_string(&leader).is_ok_and(|pid| !pid.is_empty() && !is_alive(&pid))
        });
        // Long enough for the pauses between two looks to become long; right without.
        std::thread::sleep(Duration::from_millis(200));
        pool.kill_all();
        fs::write(&gate, "").unwrap();
        let outcome = ended(&pool);
        assert!(matches!(outcome.result, Err(Failure::Killed)), "{:?}", outcome.result);
    }
}

#[test]
fn what_ends_unnoticed_is_reaped_while_the_tool_runs() {
    let bench = Bench::new();
    let pid = bench.file("pid", "");
    let script = format!("(setsid sh -c 'echo $$ > {}' &); sleep 1000", pid.display());
    let pool = bench.pool();
    pool.submit(script_task(&script), false);
    wait_until("nothing starts", || fs::read_to_string(&pid).is_ok_and(|text| !text.is_empty()));
    let number = fs::read_to_string(&pid).unwrap();
    wait_until("a zombie stays", || !Path::new(&format!("/proc/{}", number.trim())).exists());
}

#[test]
fn what_crashed_and_was_reaped_meanwhile_does_not_go_by_unseen() {
    let bench = Bench::new();
    let pid = bench.file("pid", "");
    // The tool ends when whoever looks after the pool has reaped what crashed.
    let script = format!(
        "(setsid sh -c 'echo $$ > {0}; kill -SEGV $$' &); while ! [ -s {0} ]; do sleep 0.01; done; \
         while [ -e /proc/$(cat {0}) ]; do sleep 0.01; done",
        pid.display()
    );
    let outcome = bench.run(script_task(&script));
    let Err(Failure::Said(words)) = &outcome.result else { panic!("{:?}", outcome.result) };
    assert!(words.contains("was killed by SIGSEGV"), "{words}");
    assert!(bench.run(script_task("true")).result.is_ok(), "what is of one task counts for the next");
}

#[test]
fn a_sweep_finds_what_hides_from_its_parents() {
    let mut bench = Bench::new();
    let secret = String::from_utf8(bench.settings.secret.clone()).unwrap();
    let token = format!("MILLRACE_TOKEN={secret}");
    bench.settings.environ.push(token.clone().into());
    let pid = bench.file("pid", "");
    let script = format!("env -i setsid sh -c 'echo $$ > {}; exec sleep 1000' & sleep 1000", pid.display());
    let pool = bench.pool();
    pool.submit(script_task(&script), false);
    wait_until("nothing starts", || fs::read_to_string(&pid).is_ok_and(|text| !text.is_empty()));
    let number = fs::read_to_string(&pid).unwrap();
    let work = bench.folder.path().join("work");
    fs::create_dir(&work).unwrap();
    sweep(&work, &token);
    assert!(!is_alive(&number));
    assert!(!work.exists());
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let bench = Bench::new();
    let output = Output { stream: 0, collect: Collect::File("cwd/out".into()), name: vec![], optional: false };
    let run = |script: &str| bench.run(Task { outputs: vec![output.clone()], ..script_task(script) });
    for (script, what) in [
        ("mkfifo out", "a named pipe"),
        ("mkdir out", "a folder"),
        ("ln -s /etc/hostname out", "a link to /etc/hostname"),
        ("ln -s /dev/zero out", "a link to /dev/zero"),
    ] {
        let outcome = run(script);
        let Err(Failure::Said(words)) = &outcome.result else { panic!("{script}: {:?}", outcome.result) };
        assert!(words.starts_with("it left cwd/out as ") && words.contains(what), "{words}");
    }
    assert_eq!(run("echo here > real; ln -s real out").result.unwrap()[0].2, b"here\n");
    assert!(matches!(run("ln -s nowhere out").result, Err(Failure::Missing(_))));
    let folder = Output { collect: Collect::Folder("cwd/out".into()), ..output.clone() };
    let outcome = bench.run(Task { outputs: vec![folder], ..script_task("mkdir out; mkfifo out/pipe") });
    assert!(matches!(outcome.result, Err(Failure::Said(_))), "{:?}", outcome.result);
}

/// A bench whose slot shows the files `log` and `sub/log` of a folder of the user's.
fn bench_with_links() -> (Bench, PathBuf) {
    let mut bench = Bench::new();
    let home = bench.folder.path().join("home");
    fs::create_dir_all(home.join("sub")).unwrap();
    for file in ["log", "sub/log"] {
        fs::write(home.join(file), "old\n").unwrap();
    }
    for name in ["log", "sub"] {
        let path = Path::new("cwd").join(name);
        std::os::unix::fs::symlink(home.join(name), bench.settings.roots[0].join(&path)).unwrap();
        bench.settings.skeleton.insert(path.clone());
        bench.settings.links.links.push((path, home.join(name)));
    }
    (bench, home)
}

#[test]
fn a_file_of_the_user_that_the_tool_writes_is_named() {
    for (script, name) in [
        ("echo x >> log", "cwd/log"),
        ("echo x > sub/log", "cwd/sub/log"),
        (": > log", "cwd/log"),
        ("echo x >> log; rm log", "cwd/log"),
    ] {
        let (bench, _) = bench_with_links();
        let pool = bench.pool();
        for _ in 0..2 {
            pool.submit(script_task(script), false);
            let outcome = ended(&pool);
            let Err(Failure::Said(words)) = &outcome.result else { panic!("{script}: {:?}", outcome.result) };
            assert!(words.starts_with(&format!("it writes {name}, ")), "{words}");
        }
        pool.submit(script_task("cat log sub/log"), false);
        assert!(stdout(&ended(&pool)).starts_with("old\n"));
    }
}

#[test]
fn a_file_of_a_folder_with_very_many_is_named_too_and_so_is_each_name_of_a_file() {
    let (bench, home) = bench_with_links();
    for number in 0..=MOST_FILES {
        fs::write(home.join(format!("sub/{number}")), "").unwrap();
    }
    fs::hard_link(home.join("sub/log"), home.join("log2")).unwrap();
    fs::remove_file(home.join("log")).unwrap();
    fs::rename(home.join("log2"), home.join("log")).unwrap();
    let pool = bench.pool();
    pool.submit(script_task("echo x > log"), false);
    let Err(Failure::Said(words)) = &ended(&pool).result else { panic!("nobody saw it") };
    assert!(words.starts_with("it writes cwd/log, "), "{words}");
    pool.submit(script_task("echo x > sub/log"), false);
    let Err(Failure::Said(words)) = &ended(&pool).result else { panic!("nobody saw it") };
    assert!(words.starts_with("it writes cwd/sub/log, "), "{words}");
}

#[test]
fn a_file_that_somebody_else_writes_is_not_the_tools() {
    let (bench, home) = bench_with_links();
    let pool = bench.pool();
    let script = |body: &str| script_task(&format!("{body}; echo done"));
    // Written by a child of this test, not of the pool.
    let write = |name: &str| {
        let path = home.join(name);
        let writer = std::process::Command::new("sh").args(["-c", "echo new >> \"$0\""]).arg(path).status();
        assert!(writer.unwrap().success());
    };
    for name in ["log", "sub/log"] {
        let gate = bench.folder.path().join("gate");
        pool.submit(script(&format!("until [ -e {} ]; do sleep 0.01; done", gate.display())), false);
        wait_until("no task", || {
            pool.events(Duration::from_millis(10)).iter().any(|event| matches!(event, Event::Started { .. }))
        });
        write(name);
        fs::write(&gate, "").unwrap();
        assert_eq!(stdout(&ended(&pool)), "done\n");
        fs::remove_file(gate).unwrap();
    }
    // As long as somebody holds it open, nothing runs twice: a log of a batch system.
    let _held = fs::OpenOptions::new().append(true).open(home.join("log")).unwrap();
    write("log");
    pool.submit(script("cat log"), false);
    assert!(ended(&pool).result.is_ok());
}

#[test]
fn what_a_tool_puts_in_the_place_of_a_link_is_not_there_for_the_next_task() {
    let (bench, home) = bench_with_links();
    let pool = bench.pool();
    for (script, extra) in [
        ("rm log; echo mine > log", vec!["cwd/log"]),
        ("rm log; mkdir log", vec!["cwd/log"]),
        ("rm -r log sub kept", vec![]),
    ] {
        pool.submit(script_task(script), false);
        let outcome = ended(&pool);
        assert_eq!(outcome.extra, extra.iter().map(PathBuf::from).collect::<Vec<_>>(), "{script}");
        assert!(outcome.result.is_ok(), "{script}: {:?}", outcome.result);
        pool.submit(script_task("cat log sub/log; ls"), false);
        assert_eq!(stdout(&ended(&pool)), "old\nold\nkept\nlog\nsub\n", "{script}");
    }
    assert_eq!(fs::read(home.join("log")).unwrap(), b"old\n");
}

#[test]
fn words_without_end_are_cut_and_the_tool_goes_on() {
    let bench = Bench::new();
    let held = "while [ $(stat -L -c %b /dev/fd/2) -gt 4000 ]; do sleep 0.01; done";
    let script = format!("echo begin >&2; head -c 40000000 /dev/zero | tr '\\0' x >&2; {held}; echo >&2; echo end >&2");
    let timeout = Some(Duration::from_secs(100));
    let outcome = bench.run(Task { outputs: vec![], timeout, ..script_task(&script) });
    outcome.result.unwrap();
    let said = String::from_utf8(outcome.stderr).unwrap();
    assert!(said.starts_with("begin\nxxx") && said.ends_with("xxx\nend\n"), "{} bytes", said.len());
    assert!(said.contains("\n[39868939 bytes left out]\n"), "{} bytes", said.len());
}

#[test]
fn standard_input_is_the_batch_or_empty() {
    let bench = Bench::new();
    let batch = bench.file("batch", ">a\nACGT\n");
    let task = Task { placements: vec![Placement::Stdin(batch)], ..script_task("cat") };
    assert_eq!(stdout(&bench.run(task)), ">a\nACGT\n");
    assert_eq!(stdout(&bench.shell("cat; echo end")), "end\n");
}

#[test]
fn a_batch_is_a_real_file_and_an_output_is_taken_from_its_place() {
    let bench = Bench::new();
    let batch = bench.file("batch", "records\n");
    let output =
        |path: &str, optional| Output { stream: 3, collect: Collect::File(path.into()), name: vec![], optional };
    let task = |script: &str, outputs| Task {
        placements: vec![Placement::Batch { from: batch.clone(), to: "cwd/in.fa".into() }],
        outputs,
        ..script_task(script)
    };
    let done = bench.run(task("cp in.fa out.txt", vec![output("cwd/out.txt", false), output("cwd/none", true)]));
    assert_eq!(done.result.unwrap(), [(3, vec![], b"records\n".to_vec())]);
    assert!(done.extra.is_empty());
    let missing = bench.run(task("true", vec![output("cwd/out.txt", false)]));
    assert!(matches!(missing.result, Err(Failure::Missing(path)) if path == Path::new("cwd/out.txt")));
    // The batch itself outlives the task: it may have to run again.
    assert_eq!(fs::read(&batch).unwrap(), b"records\n");
}

#[test]
fn every_file_of_a_folder_is_a_named_block() {
    let bench = Bench::new();
    let task = Task {
        placements: vec![Placement::Folder("cwd/out".into())],
        outputs: vec![Output { stream: 0, collect: Collect::Folder("cwd/out".into()), name: vec![], optional: false }],
        ..script_task("mkdir out/b; echo 2 > out/b/y; echo 1 > out/a")
    };
    let kept = bench.run(task).result.unwrap();
    assert_eq!(kept, [(0, b"a".to_vec(), b"1\n".to_vec()), (0, b"b/y".to_vec(), b"2\n".to_vec())]);
}

#[test]
fn a_closed_pipe_ends_a_tool_as_it_would_in_a_shell() {
    // The test runner, as Python, ignores SIGPIPE: a tool must not inherit that.
    let outcome = Bench::new().shell("(sleep 1; yes; echo $? >&2) | true; grep SigIgn /proc/self/status");
    let ignored = stdout(&outcome);
    let mask = u64::from_str_radix(ignored.trim().rsplit('\t').next().unwrap(), 16).unwrap();
    assert_eq!(mask & (1 << (libc::SIGPIPE - 1)), 0, "{ignored}");
    assert_eq!(mask & (1 << (libc::SIGXFSZ - 1)), 0, "{ignored}");
}

#[test]
fn no_signal_is_blocked_in_a_tool() {
    let outcome = Bench::new().shell("grep SigBlk /proc/self/status");
    assert_eq!(stdout(&outcome).split_whitespace().last(), Some("0000000000000000"));
}

#[test]
fn a_script_without_a_first_line_is_run_by_the_shell() {
    let mut bench = Bench::new();
    let script = bench.file("script", "echo \"script $1\"\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    bench.settings.exe = CString::new(script.to_str().unwrap()).unwrap();
    let task = Task { argv: vec![b"script".to_vec(), b"arg".to_vec()], ..script_task("") };
    assert_eq!(stdout(&bench.run(task)), "script arg\n");
}

#[test]
fn a_missing_program_is_an_error_of_the_start() {
    let mut bench = Bench::new();
    bench.settings.exe = c"/no/such/program".into();
    let outcome = bench.shell("");
    assert!(
        matches!(&outcome.result, Err(Failure::Spawn(error)) if error.kind() == io::ErrorKind::NotFound),
        "{:?}",
        outcome.result
    );
}

#[test]
fn a_large_environment_gets_there_and_a_too_large_one_is_an_error() {
    let mut bench = Bench::new();
    bench.settings.environ.extend((0..500).map(|k| format!("V{k}={}", "x".repeat(1000)).into()));
    assert_eq!(stdout(&bench.shell("echo ${#V0} ${#V499}")), "1000 1000\n");
    bench.settings.environ.push(format!("HUGE={}", "x".repeat(1 << 20)).into());
    let outcome = bench.shell("true");
    assert!(
        matches!(&outcome.result, Err(Failure::Spawn(error)) if error.raw_os_error() == Some(libc::E2BIG)),
        "{:?}",
        outcome.result
    );
}

#[test]
fn what_nobody_asked_for_is_reported_and_removed() {
    let bench = Bench::new();
    let outcome =
        bench.shell("echo x > dropped; mkdir -p deep/er; echo y > deep/er/file; echo z > kept/inside; mkfifo pipe");
    let mut extra: Vec<_> = outcome.extra.iter().map(|path| path.to_str().unwrap()).collect();
    extra.sort_unstable();
    assert_eq!(extra, ["cwd/deep", "cwd/dropped", "cwd/kept/inside"]);
    assert_eq!(names(bench.folder.path()), ["slot-0"], "captures are removed, too");
}

#[test]
fn private_paths_in_output_and_words_are_the_users_again() {
    let bench = Bench::new();
    let done = bench.shell("pwd; printf 'path: %s/q.fa.\\n' \"$PWD\"; echo \"$PWD\" >&2");
    assert_eq!(stdout(&done), "/home/me\npath: /home/me/q.fa.\n");
    assert_eq!(done.stderr, b"/home/me\n");
    // Better no block than one with a private path in it: this one is above all that the user knows.
    let outcome = bench.shell("cd ../..; pwd");
    assert!(matches!(outcome.result, Err(Failure::Io(_))), "{:?}", outcome.result);
}

#[test]
fn the_slot_mark_in_arguments_is_the_slots_directory() {
    let bench = Bench::new();
    let task = Task {
        argv: [b"sh".as_slice(), b"-c", b"[ \"$1\" = \"$PWD/x\" ] && echo same", b"sh", b"\0slot\0/cwd/x"]
            .map(<[u8]>::to_vec)
            .to_vec(),
        ..script_task("")
    };
    assert_eq!(stdout(&bench.run(task)), "same\n");
}

#[test]
fn killing_all_ends_what_runs_and_closing_leaves_nothing() {
    let bench = Bench::new();
    let pid = bench.file("pid", "");
    let script = format!("echo $$ > {}; sleep 1000", pid.display());
    let pool = bench.pool();
    pool.submit(script_task(&script), false);
    pool.submit(Task { id: 2, ..script_task("echo never") }, false);
    wait_until("the tool does not start", || fs::read_to_string(&pid).is_ok_and(|text| !text.is_empty()));
    assert_eq!(pool.withdraw(), [2]);
    pool.kill_all();
    assert!(matches!(ended(&pool).result, Err(Failure::Killed)));
    drop(pool);
    fs::write(&pid, "").unwrap();
    let pool = bench.pool();
    pool.submit(script_task(&script), false);
    wait_until("the tool does not start", || fs::read_to_string(&pid).is_ok_and(|text| !text.is_empty()));
    let number = fs::read_to_string(&pid).unwrap();
    drop(pool);
    assert!(!is_alive(&number), "a tool outlives its pool");
    assert_eq!(names(&bench.settings.roots[0].join("cwd")), ["kept"]);
}

#[test]
fn a_large_parent_starts_tools_all_the_same() {
    // A fork would have to copy the page tables of all this; that it works is all that is tested here.
    let ballast = vec![1_u8; 256 << 20];
    let bench = Bench::new();
    for _ in 0..20 {
        assert_eq!(stdout(&bench.shell("echo here")), "here\n");
    }
    assert_eq!(ballast[ballast.len() / 2], 1);
}

#[test]
fn a_watchdog_removes_the_work_directory_when_it_is_closed() {
    // It is forked from a process with threads here, which a run never does: it must not allocate before it sweeps,
    // so this test does it in a process of its own with one thread.
    let folder = TempDir::new().unwrap();
    let work = folder.path().join("work");
    fs::create_dir_all(work.join("slot-0")).unwrap();
    let token = format!("MILLRACE_TOKEN=watchdog-{}", std::process::id());
    let watchdog = Watchdog::start(&work, Some(&token)).unwrap();
    assert!(has_child_named("millrace-watch"), "whoever ends a job would kill it with the rest");
    assert!(work.exists());
    drop(watchdog);
    assert!(!work.exists());
}

fn has_child_named(name: &str) -> bool {
    let of_child = format!("({name}) ");
    let parent = format!(" {} ", std::process::id());
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        stat.split_once(&of_child).is_some_and(|(_, rest)| rest[1..].starts_with(&parent))
    })
}

#[test]
fn ends_are_told_in_bunches_and_failures_at_once() {
    let bench = Bench::new();
    let pool = bench.pool();
    let gate = bench.folder.path().join("gate");
    pool.submit(script_task(&format!("while ! test -e {}; do sleep 0.01; done", gate.display())), false);
    assert!(matches!(pool.events(Duration::from_secs(60))[..], [Event::Started { .. }]));
    for _ in 0..16 {
        pool.submit(script_task(""), false);
    }
    fs::write(gate, "").unwrap();
    let told = pool.events(Duration::from_secs(60));
    assert!(told.iter().filter(|event| matches!(event, Event::Ended { .. })).count() >= 8, "{told:?}");

    let pool = bench.pool();
    for script in ["exit 3"].into_iter().chain(["sleep 60"; 16]) {
        pool.submit(script_task(script), false);
    }
    let begun = Instant::now();
    assert!(matches!(ended(&pool).result, Err(Failure::Ended(_))));
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_task_may_have_a_program_a_link_and_names_of_its_own() {
    let bench = Bench::new();
    let elsewhere = bench.folder.path().join("secret-elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("part"), "found\n").unwrap();
    let task = Task {
        exe: Some(c"/usr/bin/env".into()),
        argv: vec![
            b"env".to_vec(),
            b"sh".to_vec(),
            b"-c".to_vec(),
            b"cat \"$1\"; echo \"$1\"; realpath \"$1\"".to_vec(),
            b"sh".to_vec(),
            b"\0slot\0/database/part".to_vec(),
        ],
        placements: vec![Placement::Link { target: elsewhere.clone(), to: "database".into() }],
        substitutions: vec![
            (b"\0slot\0/database/part".to_vec(), b"nr".to_vec()),
            (elsewhere.join("part").to_str().unwrap().into(), b"nr as well".to_vec()),
        ],
        ..script_task("")
    };
    let outcome = bench.run(task);
    assert_eq!(outcome.result.unwrap()[0].2, b"found\nnr\nnr as well\n");
    assert!(outcome.extra.is_empty());
    assert_eq!(names(&bench.settings.roots[0]), ["cwd"]);
    assert!(elsewhere.join("part").exists(), "only the link goes");
}

#[derive(Debug)]
struct One;

impl Lengths for One {
    fn of(&self, batch: &Path) -> io::Result<Vec<u64>> {
        Ok(vec![fs::metadata(batch)?.len()])
    }
}

#[test]
fn a_program_that_does_not_end_is_killed_when_asked_for_and_nothing_is_held_against_it() {
    let mut bench = Bench::new();
    bench.settings.records = Some(Arc::new(One));
    let (batch, mark) = (bench.file("batch", "MKV"), bench.folder.path().join("parting"));
    let script = format!(
        r#"while read number length; do read record; printf '%s %s\n%s\n' "$number" "$length" "$record"; done
        echo more; : > {}; exec sleep 3600"#,
        mark.display()
    );
    let pool = bench.pool();
    pool.submit(Task { placements: vec![Placement::Stdin(batch)], ..script_task(&script) }, false);
    assert_eq!(stdout(&ended(&pool)), "MKV");
    std::thread::scope(|scope| {
        let parting = scope.spawn(|| pool.part(Duration::from_secs(3600)));
        wait_until("the program has more to say", || mark.exists());
        pool.kill_all();
        wait_until("the program is gone", || parting.is_finished());
        assert!(parting.join().unwrap().unwrap().is_empty());
    });
}
