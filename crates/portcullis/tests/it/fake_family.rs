//! A family that exists only here: one entry in a list gives it its section, tables, checks, service and readiness.

use portcullis::compose::compose;
use portcullis::config::{Config, example_with, schema_with};
use portcullis::services::{ServingHub, of_a_hub};
use portcullis_core::{
    BoxFuture, CallCtx, CallLimits, Caller, Effect, Example, Family, Health, Origin, Reach, Service,
    ServiceCtx, ServiceError, Text, ToolError, ToolSpec,
};
use portcullis_family::{
    AbsentSection, CheckState, ConfigSection, DoctorParts, Families, FamilyModule, HealthCheck, Provided,
    SectionChecks, SectionSpec,
};
use portcullis_ops::doctor::{check_families, open_secrets};
use portcullis_ops::guard_settings::local_client;
use portcullis_ops::home::Home;
use portcullis_ops::logging;
use portcullis_ops::output_redaction::OutputRedaction;
use portcullis_server::ServiceStatus;
use portcullis_store::FamilyTables;
use portcullis_store::database::{Database, DatabaseError, Migration, wait};
use portcullis_upstream::Shutdown;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const FAKE: Families = &[FamilyModule {
    name: "fake",
    tables: Some(FamilyTables {
        migrations: &[Migration {
            owner: "fake",
            number: 1,
            sql: "CREATE TABLE fake_notes (id TEXT PRIMARY KEY);",
        }],
        legacy: &[],
    }),
    section: Some(SectionSpec::of::<FakeSection>()),
    doctor: Some(doctor),
    provide: |parts| {
        let Some(settings) = parts.section::<FakeSection>() else { return Ok(None) };
        let family = Family::new("fake").tool(HELLO, &Arc::new(settings.greeting.clone()), hello);
        let provided = Provided::from(family).with_service(Arc::new(FakeService));
        Ok(Some(provided.with_readiness(|| Err("it is only a fake".to_owned()))))
    },
}];

const HELLO: ToolSpec = ToolSpec {
    name: "fake_hello",
    title: "Say hello",
    description: "Return the greeting of the configuration.",
    effect: Effect::Read,
    reach: Reach::Local,
    limits: CallLimits::DEFAULT,
    example: Example { what: "Say hello", arguments: "{}" },
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HelloArgs {}

async fn hello(greeting: Arc<String>, _: HelloArgs, _: CallCtx) -> Result<Text, ToolError> {
    Ok(Text(greeting.to_string()))
}

/// A family of tests. This section enables it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct FakeSection {
    /// What to say.
    greeting: String,
    /// What is not shown.
    password: String,
}

#[derive(Debug)]
struct FakeSettings {
    greeting: String,
}

impl Default for FakeSection {
    fn default() -> Self {
        FakeSection { greeting: "hello".to_owned(), password: String::new() }
    }
}

impl ConfigSection for FakeSection {
    const KEY: &'static str = "fake";
    const ABSENT: AbsentSection = AbsentSection::Off;
    type Settings = FakeSettings;

    fn resolve(&self, checks: &mut SectionChecks<'_>) -> Option<FakeSettings> {
        if self.greeting.is_empty() {
            checks.unexpected("/fake/greeting", &self.greeting, "a greeting");
        }
        Some(FakeSettings { greeting: self.greeting.clone() })
    }

    fn hide_values(written: &mut serde_json::Value) {
        written["password"] = portcullis_family::NOT_SHOWN.into();
    }
}

struct FakeService;

impl Service for FakeService {
    fn name(&self) -> &'static str {
        "fake-service"
    }

    fn run(self: Arc<Self>, ctx: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
        Box::pin(async move {
            ctx.shutdown.cancelled().await;
            Ok(())
        })
    }

    fn health(&self) -> Health {
        Health::Failed("it only pretends".to_owned())
    }
}

fn doctor<'a>(parts: &'a DoctorParts<'a>) -> BoxFuture<'a, Vec<HealthCheck>> {
    Box::pin(async {
        let rows = parts.database.map(count_notes);
        let greeting = parts.section::<FakeSection>().map(|settings| settings.greeting.as_str());
        vec![CheckState::Good(format!("{rows:?} {greeting:?}")).of("fake")]
    })
}

/// Fails if there is no such table.
fn count_notes(database: &Database) -> usize {
    let rows = database.read::<_, DatabaseError>(|transaction| {
        Box::pin(async move { transaction.query("SELECT id FROM fake_notes", &[]).await })
    });
    wait(rows).unwrap().len()
}

fn written(home: &Home, text: &str) -> Config {
    std::fs::write(home.path().join("portcullis.toml"), text).unwrap();
    Config::load_with(FAKE, home.path(), &|_| None).unwrap().config
}

fn home(folder: &tempfile::TempDir) -> Home {
    Home::open(folder.path().join("home")).unwrap()
}

#[test]
fn its_section_is_documented_checked_and_shown() {
    let schema = schema_with(FAKE);
    assert_eq!(schema["properties"]["fake"]["description"], "A family of tests. This section enables it.");
    assert_eq!(schema["properties"]["memory"], serde_json::Value::Null);
    let section =
        "\n# A family of tests. This section enables it.\n#[fake]\n# What to say.\n#greeting = \"hello\"\n";
    assert!(example_with(FAKE).contains(section), "{}", example_with(FAKE));

    let folder = tempfile::tempdir().unwrap();
    let home = home(&folder);
    let config = written(&home, "[fake]\ngreeting = \"hi\"\npassword = \"hunter2\"\n");
    let shown = config.shown()["fake"].to_string();
    assert_eq!(shown, r#"{"greeting":"hi","password":"[not shown]"}"#);
    assert_eq!(config.diff_needs_restart(&written(&home, "[fake]\n")), ["fake.greeting", "fake.password"]);
    assert!(written(&home, "").section::<FakeSection>().is_none());

    let told = |text: &str| {
        std::fs::write(home.path().join("portcullis.toml"), text).unwrap();
        Config::load_with(FAKE, home.path(), &|_| None).unwrap_err().to_string()
    };
    insta::assert_snapshot!(told("[fake]\ngreting = \"x\"\ngreeting = \"\"\n[http]\nlisten = 3\n"), @r#"
    portcullis.toml:2: `fake.greting` is not a setting; did you mean `greeting`?
    portcullis.toml:3: `fake.greeting` is "", expected a greeting
    portcullis.toml:5: `http.listen` is 3, expected text like "127.0.0.1:3000"
    "#);
    // The product has no such family.
    std::fs::write(home.path().join("portcullis.toml"), "[fake]\n").unwrap();
    assert!(
        Config::load(home.path(), &|_| None).unwrap_err().to_string().contains("`fake` is not a setting")
    );
}

#[tokio::test]
async fn its_tools_tables_checks_service_and_readiness_are_the_hubs() {
    let folder = tempfile::tempdir().unwrap();
    let home = home(&folder);
    let config = written(&home, "[fake]\n");
    let composed = Arc::new(compose(&home, &config, &Shutdown::default()).unwrap());
    let process = ServingHub {
        home: &home,
        config: &config,
        version: &portcullis_ops::reload::version(home.path()),
        log_level: logging::start(config.logging, &OutputRedaction::default()),
        bound: None,
        accept_loops: Vec::new(),
        script_states: None,
    };
    composed.hub.start_services(of_a_hub(&composed, process)).unwrap();

    let caller = Caller::new(local_client(&config), Origin::Admin);
    let tools = composed.gate.tools(&caller).unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["fake_hello"]);

    assert_eq!(count_notes(&composed.database), 0);

    let ready = composed.hub.readiness();
    let fake = ready.iter().find(|readiness| readiness.component == "fake").unwrap();
    assert_eq!(fake.state, Err("it is only a fake".to_owned()));

    let services = composed.hub.service_statuses();
    let service = services.iter().find(|status| status.name == "fake-service").unwrap();
    assert_eq!(ServiceStatus::problem(service).as_deref(), Some("it only pretends"));

    let secrets = open_secrets(&home, &config).unwrap();
    let checks = check_families(&home, &config, Ok(&secrets)).await;
    assert_eq!(checks.len(), 1, "{checks:?}");
    let CheckState::Good(said) = &checks[0].state else { panic!("{checks:?}") };
    assert_eq!((checks[0].what, said.as_str()), ("fake", "Ok(0) Some(\"hello\")"));
    composed.hub.shut_down(std::time::Duration::from_secs(5)).await;
}

#[test]
fn a_list_of_tools_touches_nothing_of_a_home() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("home");
    let config = Config::of_every_family(&nowhere).unwrap();
    let tools = portcullis_ops::tool_families::native_tools(&config).unwrap();
    for prefix in ["workspace_", "memory_", "vault_", "web_", "calendar_", "github_", "script_"] {
        assert!(tools.iter().any(|tool| tool.name.starts_with(prefix)), "{prefix}");
    }
    assert!(!nowhere.exists());
}
