//! Servers behind the real hub, reached over real connections.

mod http;
mod http_bad;
mod http_real;
mod support;
