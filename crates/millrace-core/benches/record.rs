//! Prints how fast records are cut, in GB of decompressed input per second of CPU.
//!
//! `cargo bench --bench record [-- MEGABYTES]`; the input, in a temporary directory, is read from the page cache.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use millrace_core::record::{Cutter, Format, Limits, Reader};

fn main() {
    let megabytes: u64 = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(1000);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let batch = dir.path().join("batch");
    let path = |name: &str| dir.path().join(name);
    let size = megabytes * 1_000_000;
    println!("{:36} {:>10} {:>12} {:>12}", "", "records", "GB/s of CPU", "GB/s");
    for (name, format, record) in [("proteins", Format::Fasta, protein()), ("reads", Format::Fastq, read())] {
        let size = if format == Format::Fasta { size } else { size / 4 };
        repeat(&path(name), &record, size);
        let sources = vec![path(name)];
        measure(&format!("{name}: {} skip", format.name()), format, &sources, |reader| {
            reader.skip(u64::MAX).expect("whole records");
        });
        measure(&format!("{name}: {} cut, 1 MB batches", format.name()), format, &sources, |reader| {
            let limits = Limits { bytes: 1_000_000, ..Limits::default() };
            while reader.cut(&batch, limits).expect("whole records").is_some() {}
        });
        measure(&format!("{name}: lines skip"), Format::Lines, &sources, |reader| {
            reader.skip(u64::MAX).expect("lines");
        });
        fs::remove_file(path(name)).expect("removable");
    }
    repeat(&path("molecules"), &molecule(), size / 4);
    for format in [Format::Mol2, Format::Sdf] {
        measure(&format!("molecules: {} skip", format.name()), format, &[path("molecules")], |reader| {
            reader.skip(u64::MAX).expect("whole records");
        });
    }
}

fn measure(what: &str, format: Format, sources: &[PathBuf], cut: impl Fn(&mut Reader)) {
    let bytes = fs::metadata(&sources[0]).expect("a file").len();
    let (mut cpu, mut wall, mut records) = (f64::INFINITY, f64::INFINITY, 0);
    for _ in 0..3 {
        let cutter = Cutter::new(format, None, None).expect("a format without parameters");
        let mut reader = Reader::new(sources.to_vec(), cutter).expect("readable");
        let (cpu_start, wall_start) = (cpu_seconds(), Instant::now());
        cut(&mut reader);
        cpu = cpu.min(cpu_seconds() - cpu_start);
        wall = wall.min(wall_start.elapsed().as_secs_f64());
        records = reader.records();
    }
    let speed = |seconds: f64| bytes as f64 / seconds / 1e9;
    println!("{what:36} {records:>10} {:>12.2} {:>12.2}", speed(cpu), speed(wall));
}

/// CPU time of this thread, user and system, as the scheduler counts it.
fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with scheduler statistics");
    text.split(' ').next().and_then(|word| word.parse::<f64>().ok()).expect("nanoseconds") / 1e9
}

fn repeat(path: &Path, record: &str, size: u64) {
    let mut file = BufWriter::new(File::create(path).expect("writable"));
    for _ in 0..size / record.len() as u64 {
        file.write_all(record.as_bytes()).expect("space");
    }
    file.flush().expect("space");
}

/// 360 residues, the median of real query sets.
fn protein() -> String {
    let line = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVK\n";
    format!(">sp|P00001|NAME_ECOLI some protein OS=Escherichia coli\n{}", line.repeat(6))
}

fn read() -> String {
    format!("@read/1\n{}\n+\n{}\n", "ACGTN".repeat(30), "IIIF#".repeat(30))
}

fn molecule() -> String {
    let atom = "      1 C           0.0000    0.0000    0.0000 C.3     1  UNL1        0.1216\n";
    format!("@<TRIPOS>MOLECULE\naspirin\n 13 13 0 0 0\n\n@<TRIPOS>ATOM\n{}$$$$\n", atom.repeat(30))
}
