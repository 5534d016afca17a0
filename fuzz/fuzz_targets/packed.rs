//! Packed bytes: what is restored has the length that was said, and is what was packed, or it is refused.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use millrace_core::pack::{pack, restore, squeeze, unpack};

#[derive(Arbitrary, Debug)]
struct Case {
    data: Vec<u8>,
    reference: Vec<u8>,
    repeats: u8,
    level: u8,
    changes: Vec<(u16, u8)>,
    cut: Option<u16>,
    length: Option<u32>,
    raw: Vec<u8>,
}

fuzz_target!(|case: Case| {
    let data = case.data.repeat(usize::from(case.repeats % 8) + 1);
    let packed = squeeze(&data, i32::from(case.level % 19) + 1, &case.reference).expect("memory suffices");
    assert!(restore(&packed, &case.reference, data.len()).expect("what was packed is restored") == data);
    assert!(restore(&packed, &case.reference, data.len() + 1).is_err());
    assert!(data.is_empty() || restore(&packed, &case.reference, data.len() - 1).is_err());
    assert!(unpack(&pack(&data).expect("memory suffices")).expect("what was packed is unpacked") == data);

    let mut damaged = packed.clone();
    for (at, bits) in &case.changes {
        let at = usize::from(*at) % damaged.len();
        damaged[at] ^= bits;
    }
    damaged.truncate(case.cut.map_or(damaged.len(), usize::from));
    let length = case.length.map_or(data.len(), |length| length as usize % (64 << 20));
    for bytes in [&damaged, &case.raw] {
        if let Ok(restored) = restore(bytes, &case.reference, length) {
            assert_eq!(restored.len(), length);
        }
    }
    // A cut is always noticed.
    if damaged.len() < packed.len() && case.changes.is_empty() {
        assert!(restore(&damaged, &case.reference, data.len()).is_err());
    }
});
