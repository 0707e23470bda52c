//! Interoperation with MCP client applications: imports the servers from their configuration, and installs the hub into it.

mod client_file;
pub mod import;
pub mod install;
