//! How fast blocks are appended with their checksums: `cargo bench --bench journal [-- MB]`.

#![allow(missing_docs)]

use std::fs::File;
use std::io::Write;
use std::time::Instant;

use millrace_core::journal::{Journal, Source, TaskHead, scan};

fn main() {
    let megabytes: u64 = std::env::args().filter_map(|word| word.parse().ok()).next_back().unwrap_or(1000);
    let place = if std::path::Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
    let dir = tempfile::tempdir_in(place).expect("a folder in memory");
    println!("{:>12} {:>14} {:>14} {:>14}", "block", "append CPU GB/s", "append GB/s", "verify GB/s");
    for block_bytes in [4 << 10, 64 << 10, 1 << 20, 16 << 20] {
        let source = dir.path().join("block");
        let text: Vec<u8> = (0..block_bytes).map(|k| (k % 251) as u8).collect();
        File::create(&source).and_then(|mut file| file.write_all(&text)).expect("written");
        let path = dir.path().join("journal");
        let mut journal = Journal::create(&path, &[7; 16]).expect("created");
        let n_tasks = (megabytes << 20) / block_bytes as u64;
        let (begun, cpu) = (Instant::now(), cpu_seconds());
        for first in 0..n_tasks {
            let head = TaskHead { first, last: first + 1, fragment: 0, attempt: 1, quarantined: false, inputs: vec![] };
            let file = File::open(&source).expect("opened");
            journal.append(&head, &mut [Source { stream: 0, name: vec![], file }]).expect("appended");
        }
        let (wall, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let begun = Instant::now();
        assert_eq!(scan(&path, true).expect("readable").tasks.len() as u64, n_tasks);
        let gigabytes = (n_tasks * block_bytes as u64) as f64 / 1e9;
        println!(
            "{block_bytes:>12} {:>14.2} {:>14.2} {:>14.2}",
            gigabytes / cpu,
            gigabytes / wall,
            gigabytes / begun.elapsed().as_secs_f64()
        );
        drop(journal);
        std::fs::remove_file(&path).expect("removed");
    }
}

fn cpu_seconds() -> f64 {
    // SAFETY: plain data, filled by the call.
    unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    }
}
