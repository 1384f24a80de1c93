//! The lab itself.
