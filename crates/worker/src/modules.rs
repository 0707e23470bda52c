//! The modules that scripts have in addition to standard Starlark.

mod data;
mod host;
mod math;
mod re;
mod time;

use starlark::environment::{Globals, GlobalsBuilder, LibraryExtension};

pub(crate) fn globals() -> Globals {
    let extensions = [
        LibraryExtension::StructType,
        LibraryExtension::Map,
        LibraryExtension::Filter,
        LibraryExtension::Partial,
        LibraryExtension::Print,
        LibraryExtension::SetType,
    ];
    let mut globals = GlobalsBuilder::extended_by(&extensions);
    globals.namespace("json", data::json);
    globals.namespace("base64", data::base64);
    globals.namespace("hash", data::hash);
    globals.namespace("re", re::re);
    globals.namespace("math", math::math);
    globals.namespace("time", time::time);
    globals.namespace("http", host::http);
    globals.namespace("secrets", host::secrets);
    globals.namespace("tools", host::tools);
    globals.build()
}
