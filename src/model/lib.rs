//! The mesh in its own words: what runs where, and what policy is made of.
//!
//! Owns plain values with an order and no I/O: the platform's objects as the mesh sees them ([`topology`]),
//! matches of requests ([`http_match`]) with their expressions ([`regex`]), the settings of sidecars
//! ([`sidecar_settings`]), when a request is sent again ([`retry_policy`]), what a service can bear
//! ([`connection_settings`], [`rate_limit`]), what of outside the mesh may be reached ([`egress`]), what is
//! asked before a request passes ([`external_authorization`]), what is logged ([`access_log`]) and how
//! ([`log_format`]), what is traced ([`tracing`]), the servers that sidecars call for these
//! ([`outside_server`]), the TLS that they speak ([`tls_parameters`]), what controllers obey
//! ([`replica_settings`]), and what policy means for one identity: its intents, [`outbound_intent`] and
//! [`inbound_intent`]. It knows neither the kinds in which they are declared nor Envoy's configuration.

pub mod access_log;
pub mod cidr;
pub mod connection_settings;
pub mod declared;
pub mod egress;
pub mod external_authorization;
pub mod http_match;
pub mod inbound_intent;
pub mod ingress;
pub mod log_format;
pub mod outbound_intent;
pub mod outside_server;
pub mod quantity;
pub mod rate_limit;
pub mod regex;
pub mod replica_settings;
pub mod retry_policy;
pub mod shared;
pub mod sidecar_settings;
pub mod tls_parameters;
pub mod topology;
pub mod tracing;
