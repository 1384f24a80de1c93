//! The protocol rule by rule (`conformance`) and as scenarios (`delta`, `sotw`, `ordering`, `resuming`,
//! `lagging`, `acked`), its bounds (`bounds`), what it costs (`work`), the bytes (`encoding`), and properties
//! that hold with a model of Envoy (`model`, `properties`).

mod acked;
mod bounds;
mod conformance;
mod delta;
mod encoding;
mod lagging;
mod model;
mod ordering;
mod properties;
mod resuming;
mod sotw;
mod support;
mod work;
