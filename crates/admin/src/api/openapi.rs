//! The OpenAPI document, generated from the route table.

use super::route::{InputSource, Route, RouteAccess, RouteKind};
use super::{ROOT, table};
use crate::sign_in::{COOKIE, CSRF_HEADER};
use axum::http::Method;
use portcullis_ops::Problem;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Returns the document. It includes the script routes, which a hub without scripts does not serve.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| s.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>();
    let mut paths: Map<String, Value> = Map::new();
    for route in table::routes() {
        let operation = operation(&route, &mut generator, &problem);
        let path = paths.entry(format!("{ROOT}{}", route.path)).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Portcullis admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Everything the admin page does. Sign in first. Requests that change state also send `x-csrf-token`, \
                the `csrf` value of `GET /api/v1/session`.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "security": [{ "session": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "session": { "type": "apiKey", "in": "cookie", "name": COOKIE } },
            "schemas": generator.take_definitions(true),
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator, problem: &Schema) -> Value {
    let mut parameters: Vec<Value> = in_path(route.path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    if route.method != Method::GET && route.access == RouteAccess::Session {
        parameters.push(
            json!({ "name": CSRF_HEADER, "in": "header", "required": true, "schema": { "type": "string" } }),
        );
    }
    let mut body = None;
    match &route.input {
        InputSource::Query(schema) => parameters.extend(in_query(schema(generator), generator)),
        InputSource::Body(schema) => {
            let content = json!({ "application/json": { "schema": schema(generator) } });
            body = Some(json!({ "required": true, "content": content }));
        }
    }
    let kind = match route.work {
        RouteKind::Json(_) => "application/json",
        RouteKind::Events => "text/event-stream",
    };
    let output = (route.output)(generator);
    let mut operation = json!({
        "operationId": id(route),
        "summary": route.what,
        "parameters": parameters,
        "responses": {
            "200": { "description": "Success", "content": { kind: { "schema": output } } },
            "default": {
                "description": "Error",
                "content": { "application/json": { "schema": problem } },
            },
        },
    });
    if let Some(body) = body {
        operation["requestBody"] = body;
    }
    if route.access == RouteAccess::Anyone {
        operation["security"] = json!([]);
    }
    operation
}

/// Returns the operation ID, such as `get_approvals_id`.
fn id(route: &Route) -> String {
    let path = route.path.replace(['{', '}'], "").replace(['/', '-', '.'], "_");
    format!("{}{path}", route.method.as_str().to_ascii_lowercase())
}

fn in_path(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// Returns the query parameters of an input type.
fn in_query(schema: Schema, generator: &SchemaGenerator) -> Vec<Value> {
    let schema = schema.to_value();
    let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    let whole = generator.definitions().get(name).cloned().unwrap_or(schema);
    let fields = whole["properties"].as_object().cloned().unwrap_or_default();
    let required = |field: &str| {
        whole["required"].as_array().is_some_and(|all| all.iter().any(|name| name.as_str() == Some(field)))
    };
    let parameter = |(field, schema): (String, Value)| json!({ "name": field, "in": "query", "required": required(&field), "schema": schema });
    fields.into_iter().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_operation_has_its_own_name() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 50);
        let lost: Vec<&&str> =
            found.iter().filter(|path| document.pointer(path.trim_start_matches('#')).is_none()).collect();
        assert_eq!(lost, Vec::<&&str>::new());
        let routes = table::routes();
        let ids: BTreeSet<String> = routes.iter().map(id).collect();
        assert_eq!(ids.len(), routes.len());
        // Write-only: no response type has a field for a value.
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let holds = |name: &str| schemas[name].to_string().contains("SecretValue");
        assert!(holds("SetSecret") && !holds("SecretView") && !holds("SecretList"));
    }
}
