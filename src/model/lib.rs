//! The mesh in its own words: what runs where, and what policy is made of.
//!
//! Owns plain values with an order and no I/O: the platform's objects as the mesh sees them ([`topology`]),
//! matches of requests ([`http_match`]) with their expressions ([`regex`]), and the settings of sidecars
//! ([`sidecar_settings`]). It knows neither the kinds in which they are declared nor Envoy.

pub mod cidr;
pub mod http_match;
pub mod regex;
pub mod sidecar_settings;
pub mod topology;
