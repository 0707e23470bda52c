//! What scripts have besides the language.

mod ask;
mod data;
mod math;
mod text;
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
    globals.namespace("re", text::re);
    globals.namespace("math", math::math);
    globals.namespace("time", time::time);
    globals.namespace("http", ask::http);
    globals.namespace("secrets", ask::secrets);
    globals.namespace("tools", ask::tools);
    globals.build()
}
