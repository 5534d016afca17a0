// What libraries share that call the kernel by themselves.

use core::ffi::c_long;

unsafe extern "C" {
    fn abort() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ends the process; a signal is never taken for a good end.
    unsafe { abort() }
}

/// The number of a system call.
pub const fn of_machine(x86_64: c_long, aarch64: c_long) -> c_long {
    if cfg!(target_arch = "x86_64") { x86_64 } else { aarch64 }
}
