// The function that a preloaded library stands before.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

const NEXT: *mut c_void = -1_isize as *mut c_void;

/// The function of this name that comes after ours.
pub unsafe fn next(place: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let found = place.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    // SAFETY: looks for a name; a tool calls only what its library has.
    let found = unsafe { dlsym(NEXT, name.as_ptr()) };
    place.store(found, Ordering::Relaxed);
    found
}
