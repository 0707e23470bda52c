//! `math`.

use num_bigint::BigInt;
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::float::UnpackFloat;
use starlark::values::{Heap, Value};

fn to_integer<'v>(number: f64, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    if !number.is_finite() {
        return Err(anyhow::anyhow!("{number} cannot be converted to an integer"));
    }
    // Exact: a double without a fraction prints with all its digits.
    let integer: BigInt = format!("{number:.0}").parse()?;
    Ok(heap.alloc(integer))
}

#[starlark_module]
pub(crate) fn math(builder: &mut GlobalsBuilder) {
    const pi: f64 = std::f64::consts::PI;
    const e: f64 = std::f64::consts::E;

    fn floor<'v>(#[starlark(require = pos)] x: UnpackFloat, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        to_integer(x.0.floor(), heap)
    }

    fn ceil<'v>(#[starlark(require = pos)] x: UnpackFloat, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        to_integer(x.0.ceil(), heap)
    }

    fn trunc<'v>(#[starlark(require = pos)] x: UnpackFloat, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        to_integer(x.0.trunc(), heap)
    }

    /// Rounds halves away from zero; to an integer, unless digits are given.
    fn round<'v>(
        #[starlark(require = pos)] x: UnpackFloat,
        #[starlark(require = pos, default = 0)] digits: i32,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        if digits == 0 {
            return to_integer(x.0.round(), heap);
        }
        let scale = 10_f64.powi(digits.clamp(-300, 300));
        Ok(heap.alloc((x.0 * scale).round() / scale))
    }

    fn sqrt(#[starlark(require = pos)] x: UnpackFloat) -> anyhow::Result<f64> {
        Ok(x.0.sqrt())
    }

    fn pow(
        #[starlark(require = pos)] x: UnpackFloat,
        #[starlark(require = pos)] y: UnpackFloat,
    ) -> anyhow::Result<f64> {
        Ok(x.0.powf(y.0))
    }

    fn exp(#[starlark(require = pos)] x: UnpackFloat) -> anyhow::Result<f64> {
        Ok(x.0.exp())
    }

    fn log(#[starlark(require = pos)] x: UnpackFloat) -> anyhow::Result<f64> {
        Ok(x.0.ln())
    }

    fn log2(#[starlark(require = pos)] x: UnpackFloat) -> anyhow::Result<f64> {
        Ok(x.0.log2())
    }

    fn log10(#[starlark(require = pos)] x: UnpackFloat) -> anyhow::Result<f64> {
        Ok(x.0.log10())
    }

    fn sin(#[starlark(require = pos)] x: UnpackFloat) -> anyhow::Result<f64> {
        Ok(x.0.sin())
    }

    fn cos(#[starlark(require = pos)] x: UnpackFloat) -> anyhow::Result<f64> {
        Ok(x.0.cos())
    }

    fn tan(#[starlark(require = pos)] x: UnpackFloat) -> anyhow::Result<f64> {
        Ok(x.0.tan())
    }

    fn atan2(
        #[starlark(require = pos)] y: UnpackFloat,
        #[starlark(require = pos)] x: UnpackFloat,
    ) -> anyhow::Result<f64> {
        Ok(y.0.atan2(x.0))
    }

    fn hypot(
        #[starlark(require = pos)] x: UnpackFloat,
        #[starlark(require = pos)] y: UnpackFloat,
    ) -> anyhow::Result<f64> {
        Ok(x.0.hypot(y.0))
    }
}
