//! Interoperation with MCP client applications: imports the servers from their configuration, and installs the hub into it.

pub mod import;
pub mod install;
