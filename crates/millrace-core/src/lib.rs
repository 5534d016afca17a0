//! The bytes of Millrace: records in, tool processes, durable blocks, joined output.
//!
//! The modules do not know each other, but for `commit`, in which slots, journal and joins meet. Nothing here knows
//! Python.

pub mod candidates;
pub mod commit;
pub mod database;
pub mod join;
pub mod journal;
pub mod pack;
pub mod record;
pub mod seal;
pub mod slot;
pub mod trace;
