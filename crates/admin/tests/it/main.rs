//! The pages as a browser asks for them, with the invented hub of the example behind them.

#[path = "../../examples/demo/data.rs"]
mod data;
#[path = "../../examples/demo/desk.rs"]
mod desk;
#[path = "../../examples/demo/scripts.rs"]
mod scripts;

mod forms;
mod support;
mod who_may;
