//! What the mesh is shown and tested with: the bookstore applications and the demo.

pub mod bookstore;
pub mod demo;
