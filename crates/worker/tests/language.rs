//! What scripts can do, in the production worker.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

use parking_lot::Mutex;
use portcullis_script::{
    HostFunctions, HostRefusal, NoHostFunctions, PoolSettings, SandboxStrictness, ScriptFailure,
    ScriptHttpRequest, ScriptHttpResponse, ScriptJob, ScriptOutput, TextPiece, WorkerPool,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn settings() -> PoolSettings {
    PoolSettings {
        program: env!("CARGO_BIN_EXE_script_worker").into(),
        arguments: vec!["worker".to_owned()],
        memory_bytes_max: 128 * 1024 * 1024,
        strictness: SandboxStrictness::Required,
        warm: 0,
        running_max: 4,
        idle: Duration::from_secs(60),
    }
}

fn job(source: &str) -> ScriptJob {
    ScriptJob {
        name: "test.star".to_owned(),
        source: source.to_owned(),
        function: None,
        args: RawValue::from_string("[]".to_owned()).unwrap(),
        timeout: Duration::from_secs(20),
        overall: Duration::from_secs(40),
        check_only: false,
    }
}

async fn run(job: ScriptJob, host: &dyn HostFunctions) -> Result<ScriptOutput, ScriptFailure> {
    WorkerPool::new(settings()).run(job, host, &CancellationToken::new()).await
}

async fn value(source: &str) -> Value {
    match run(job(source), &NoHostFunctions).await {
        Ok(done) => serde_json::from_str(done.value.get()).unwrap(),
        Err(failure) => panic!("{source}: {failure:?}"),
    }
}

async fn fault(source: &str) -> portcullis_script::ScriptDiagnostic {
    match run(job(source), &NoHostFunctions).await {
        Err(ScriptFailure::Script(fault, _)) => fault,
        other => panic!("{source}: {other:?}"),
    }
}

#[tokio::test]
async fn the_value_is_main_then_result_then_the_last_expression() {
    assert_eq!(value("def main():\n    return 1\nresult = 2\n3").await, 1);
    assert_eq!(value("result = 2\n3").await, 2);
    assert_eq!(value("x = 2\nx + 1").await, 3);
    assert_eq!(value("x = 2").await, Value::Null);
    assert_eq!(value("2 + 2").await, 4);
}

#[tokio::test]
async fn a_function_gets_its_arguments_and_integers_stay_integers() {
    let args = r#"["London", 3, 12345678901234567890123456789, 1.5, {"k": [null, true]}]"#;
    let source = "def show(city, days, big, half, more):\n    return [city, range(days), big + 1, half, more, \"%d\" % days]";
    let job = ScriptJob {
        function: Some("show".to_owned()),
        args: RawValue::from_string(args.to_owned()).unwrap(),
        ..job(source)
    };
    let done = run(job.clone(), &NoHostFunctions).await.unwrap();
    assert_eq!(
        done.value.get(),
        r#"["London",[0,1,2],12345678901234567890123456790,1.5,{"k":[null,true]},"3"]"#
    );
    let missing = ScriptJob { function: Some("gone".to_owned()), ..job };
    match run(missing, &NoHostFunctions).await {
        Err(ScriptFailure::Script(fault, _)) => {
            assert_eq!(fault.message, "there is no function `gone`; available: show")
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn modules_do_what_they_say() {
    for (source, expected) in [
        (
            r#"json.decode('{"a": [1, 2.5, 18446744073709551616]}')["a"][2] + 1"#,
            json!("18446744073709551617"),
        ),
        (
            r#"json.encode({"a": [1, None, True, "x\"", 1.5], "b": ()})"#,
            json!(r#"{"a":[1,null,true,"x\"",1.5],"b":[]}"#),
        ),
        (r#"base64.decode(base64.encode("grüß"))"#, json!("grüß")),
        (r#"base64.encode("??>", url = True)"#, json!("Pz8-")),
        (r#"hash.sha256("abc")[:16]"#, json!("ba7816bf8f01cfea")),
        (r#"hash.hmac_sha256("key", "text")[:8]"#, json!("6afa9046")),
        (r#"re.search("(\\w+)@(\\w+)", "mail me@home now")"#, json!(["me@home", "me", "home"])),
        (r#"re.match("b", "abc")"#, Value::Null),
        (r#"re.findall("\\d+", "1 22 333")"#, json!(["1", "22", "333"])),
        (r#"re.sub("(a)(b)", "$2$1", "abab")"#, json!("baba")),
        (r#"re.split(",\\s*", "a, b,c")"#, json!(["a", "b", "c"])),
        (
            "[math.floor(2.7), math.ceil(2.1), math.round(2.5), math.round(2.345, 2), math.sqrt(16)]",
            json!([2, 3, 3, 2.35, 4.0]),
        ),
        (r#"time.format(0, "%Y-%m-%d %H:%M", zone = "Europe/Vienna")"#, json!("1970-01-01 01:00")),
        (
            r#"time.format("2026-07-28T12:00:00Z", zone = "America/New_York")"#,
            json!("2026-07-28T08:00:00-04:00"),
        ),
        (r#"time.parse("2026-07-28 14:00", "%Y-%m-%d %H:%M", zone = "Europe/Vienna")"#, json!(1785240000.0)),
        (r#"len(time.now()) == 20 and time.unix() > 1700000000"#, json!(true)),
        ("struct(a = 1, b = [set([2])])", json!({"a": 1, "b": [[2]]})),
        ("{1: 2}", json!({"1": 2})),
    ] {
        let source = if expected.is_string() && source.ends_with("+ 1") {
            format!("str({source})")
        } else {
            source.to_owned()
        };
        assert_eq!(value(&source).await, expected, "{source}");
    }
}

#[tokio::test]
async fn what_is_printed_comes_back_and_has_a_bound() {
    let done = run(job("print(\"a\", 1)\nprint(\"b\")\n7"), &NoHostFunctions).await.unwrap();
    assert_eq!((done.printed.as_str(), done.value.get()), ("a 1\nb\n", "7"));
    let flood = "def main():\n    for i in range(100000):\n        print(\"x\" * 100)\n    return 1\n";
    let done = run(job(flood), &NoHostFunctions).await.unwrap();
    assert!(done.printed.len() < 70 * 1024, "{}", done.printed.len());
}

#[tokio::test]
async fn a_fault_says_where_it_is() {
    let found = fault("def f(x):\n    return x + \"a\"\n\nf(1)\n").await;
    assert_eq!((found.line, found.column), (Some(2), Some(12)));
    let excerpt = found.excerpt.unwrap();
    assert!(excerpt.contains("   2 |     return x + \"a\"\n") && excerpt.contains('^'), "{excerpt}");
    let found = fault("x = = 1").await;
    assert_eq!((found.line, found.column), (Some(1), Some(5)));
    assert!(fault("fail(\"boom\")").await.message.contains("boom"));
    assert!(
        fault(&format!("x = {}1{}", "(".repeat(10_000), ")".repeat(10_000))).await.message.contains("nested")
    );
    assert!(fault("load(\"b.star\", \"x\")").await.message.contains("load"), "no other files");
    assert!(fault("def main():\n    return main\n").await.message.contains("cannot be converted to JSON"));
    assert!(fault("float(\"nan\")").await.message.contains("not a JSON number"));
    let found = fault("time.sleep(3600)").await;
    assert!(found.message.contains("the remaining"), "{}", found.message);
}

/// Records the requests.
#[derive(Default)]
struct RecordingHost {
    asked: Mutex<Vec<String>>,
    waited: Mutex<Duration>,
}

type HostFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, HostRefusal>> + Send + 'a>>;

impl HostFunctions for RecordingHost {
    fn http(&self, ask: ScriptHttpRequest) -> HostFuture<'_, ScriptHttpResponse> {
        self.asked.lock().push(format!("{ask:?}"));
        assert!(ask.secrets().all(|name| name == "A_KEY"));
        let headers = BTreeMap::from([("x".to_owned(), "y".to_owned())]);
        let answer = ScriptHttpResponse {
            status: 200,
            url: "https://x/".to_owned(),
            headers,
            body: "{\"n\":1}".to_owned(),
        };
        Box::pin(async { Ok(answer) })
    }

    fn tool(&self, name: String, arguments: Box<RawValue>) -> HostFuture<'_, Box<RawValue>> {
        self.asked.lock().push(format!("{name} {}", arguments.get()));
        if name == "slow" {
            // A person takes longer than the script's timeout.
            *self.waited.lock() = Duration::from_secs(3);
            return Box::pin(async {
                tokio::time::sleep(Duration::from_secs(3)).await;
                Ok(RawValue::from_string("\"late\"".to_owned()).unwrap())
            });
        }
        if name == "no" {
            let refusal = HostRefusal { code: "denied".to_owned(), message: "not you".to_owned() };
            return Box::pin(async { Err(refusal) });
        }
        Box::pin(async { Ok(RawValue::from_string("{\"x\": [1]}".to_owned()).unwrap()) })
    }

    fn has_secret(&self, name: &str) -> bool {
        name == "A_KEY"
    }

    fn waited(&self) -> Duration {
        *self.waited.lock()
    }
}

#[tokio::test]
async fn a_secret_is_a_handle_and_the_hub_fills_it() {
    let host = RecordingHost::default();
    let source = r#"
key = secrets.get("A_KEY")
r = http.post("https://x/?k=" + key, json = {"token": key, "t": "pre-" + key, "n": 1}, headers = {"Authorization": "Bearer " + key})
[str(key), "%s" % key, secrets.has("B_KEY"), r["status"], json.decode(r["body"])["n"], json.encode(key), r["headers"]]
"#;
    let done = run(job(source), &host).await.unwrap();
    let value: Value = serde_json::from_str(done.value.get()).unwrap();
    assert_eq!(
        value,
        json!(["[secret A_KEY]", "[secret A_KEY]", false, 200, 1, "\"[secret A_KEY]\"", {"x": "y"}])
    );
    assert!(done.used_secret);
    let asked = host.asked.lock().join("\n");
    let secret = TextPiece::Secret("A_KEY".to_owned());
    let text = |text: &str| format!("{:?}", TextPiece::Text(text.to_owned()));
    for expected in [
        format!("url: [{}, {secret:?}]", text("https://x/?k=")),
        format!("(\"Authorization\", [{}, {secret:?}])", text("Bearer ")),
        format!(
            "{}, {secret:?}, {}, {secret:?}, {}",
            text("{\"token\":\""),
            text("\",\"t\":\"pre-"),
            text("\",\"n\":1}")
        ),
    ] {
        assert!(asked.contains(&expected), "{expected}\n{asked}");
    }
    // A formatted handle still works; a secret that is not granted has none; the value cannot be read.
    let formatted = "http.get(\"https://x/\", headers = {\"a\": \"Bearer {}\".format(secrets.get(\"A_KEY\"))})[\"status\"]";
    assert!(run(job(formatted), &host).await.unwrap().used_secret);
    assert!(
        !run(job("http.get(\"https://x/[secret A_KEY]\")[\"status\"]"), &host).await.unwrap().used_secret
    );
    for (source, message) in [
        ("secrets.get(\"B_KEY\")", "not granted"),
        ("hash.sha256(secrets.get(\"A_KEY\"))", "only be used in requests"),
        ("fail(secrets.get(\"A_KEY\"))", "[secret A_KEY]"),
    ] {
        match run(job(source), &host).await {
            Err(ScriptFailure::Script(fault, _)) => {
                assert!(fault.message.contains(message), "{}", fault.message)
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_tool_is_called_by_the_hub_and_a_refusal_says_where() {
    let host = RecordingHost::default();
    let done = run(job("tools.call(\"t\", path = \"a\", n = 1)[\"x\"][0]"), &host).await.unwrap();
    assert_eq!(done.value.get(), "1");
    assert_eq!(*host.asked.lock(), [r#"t {"path":"a","n":1}"#]);
    match run(job("x = 1\ntools.call(\"no\")"), &host).await {
        Err(ScriptFailure::Script(fault, _)) => {
            assert_eq!(
                (fault.message.as_str(), fault.line, fault.code.as_deref()),
                ("not you", Some(2), Some("denied"))
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn waiting_for_a_person_is_not_the_scripts_time() {
    let host = RecordingHost::default();
    let job = ScriptJob { timeout: Duration::from_secs(2), ..job("tools.call(\"slow\")") };
    // Control: a host that does not report its waiting time.
    assert_eq!(run(job, &host).await.unwrap().value.get(), "\"late\"");
}

#[tokio::test]
async fn workers_stand_ready_only_while_they_are_used() {
    let pool = WorkerPool::new(PoolSettings { warm: 2, idle: Duration::from_millis(1_500), ..settings() });
    assert_eq!(pool.ready(), 0);
    let done = pool.run(job("1"), &NoHostFunctions, &CancellationToken::new()).await.unwrap();
    assert!(done.memory_bytes.is_some_and(|bytes| bytes < 64 * 1024 * 1024), "{:?}", done.memory_bytes);
    let mut seen = 0;
    for _ in 0..200 {
        seen = seen.max(pool.ready());
        if seen == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(seen, 2);
    for _ in 0..300 {
        if pool.ready() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("they still stand ready");
}

#[tokio::test]
async fn a_caller_who_gives_up_ends_the_script() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let forever = job("def main():\n    for i in range(10000000000):\n        pass\n");
    assert!(matches!(
        WorkerPool::new(settings()).run(forever, &NoHostFunctions, &cancel).await,
        Err(ScriptFailure::Cancelled)
    ));
}
