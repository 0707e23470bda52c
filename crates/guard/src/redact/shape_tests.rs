//! Unregistered tokens, recognized by shape.

use super::corpus_tests::{SeededRandom, WORD, shared};
use super::token_shapes::ShapeBody;
use super::*;
use serde::Deserialize;

const HEX: &str = "0123456789abcdef";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const URL: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Tokens as issued by their providers: label, prefix, and what follows.
const ISSUED: &[(&str, &str, &str, usize)] = &[
    ("CLIENT_TOKEN", "pcl_", URL, 43),
    ("GITHUB_TOKEN", "ghp_", WORD, 36),
    ("GITHUB_TOKEN", "gho_", WORD, 36),
    ("GITHUB_TOKEN", "ghu_", WORD, 36),
    ("GITHUB_TOKEN", "ghs_", WORD, 36),
    ("GITHUB_TOKEN", "ghr_", WORD, 36),
    ("GITHUB_TOKEN", "github_pat_11ABCDEFG0123456789abc_", WORD, 59),
    ("GITLAB_TOKEN", "glpat-", WORD, 20),
    ("GITLAB_TOKEN", "gldt-", WORD, 20),
    ("GITLAB_TOKEN", "glrt-", WORD, 20),
    ("GITLAB_TOKEN", "glptt-", HEX, 40),
    ("GITLAB_TOKEN", "glcbt-a1_", WORD, 20),
    ("SLACK_TOKEN", "xoxb-123456789012-1234567890123-", WORD, 24),
    ("SLACK_TOKEN", "xoxp-123456789012-123456789012-123456789012-", HEX, 32),
    ("SLACK_TOKEN", "xapp-1-A0123456789-1234567890123-", HEX, 64),
    ("AWS_KEY_ID", "AKIA", UPPER, 16),
    ("AWS_KEY_ID", "ASIA", UPPER, 16),
    ("GOOGLE_API_KEY", "AIza", WORD, 35),
    ("GOOGLE_OAUTH_SECRET", "GOCSPX-", WORD, 28),
    ("GOOGLE_OAUTH_TOKEN", "ya29.", WORD, 120),
    ("STRIPE_KEY", "sk_live_", WORD, 24),
    ("STRIPE_KEY", "rk_live_", WORD, 99),
    ("STRIPE_KEY", "sk_test_", WORD, 24),
    ("STRIPE_WEBHOOK_SECRET", "whsec_", WORD, 32),
    ("ANTHROPIC_KEY", "sk-ant-api03-", WORD, 95),
    ("OPENROUTER_KEY", "sk-or-v1-", HEX, 64),
    ("OPENAI_KEY", "sk-proj-", URL, 120),
    ("OPENAI_KEY", "sk-svcacct-", URL, 120),
    ("OPENAI_KEY", "sk-", WORD, 48),
    ("NPM_TOKEN", "npm_", WORD, 36),
    ("PYPI_TOKEN", "pypi-AgEIcHlwaS5vcmc", URL, 120),
    ("CRATES_IO_TOKEN", "cio", WORD, 32),
    ("RUBYGEMS_KEY", "rubygems_", HEX, 48),
    ("DOCKER_TOKEN", "dckr_pat_", WORD, 27),
    ("DIGITALOCEAN_TOKEN", "dop_v1_", HEX, 64),
    ("DATABRICKS_TOKEN", "dapi", HEX, 32),
    ("HUGGINGFACE_TOKEN", "hf_", WORD, 34),
    ("SENDGRID_KEY", "SG.aB3dE5gH7jK9mN1pQ3sT5v.", WORD, 43),
    ("SHOPIFY_TOKEN", "shpat_", HEX, 32),
    ("SHOPIFY_TOKEN", "shpss_", HEX, 32),
    ("TWILIO_KEY", "SK", HEX, 32),
    ("MAILGUN_KEY", "key-", HEX, 32),
    ("LINEAR_KEY", "lin_api_", WORD, 40),
    ("NOTION_TOKEN", "ntn_", WORD, 46),
    ("VAULT_TOKEN", "hvs.", WORD, 90),
    ("TERRAFORM_TOKEN", "atlasv1.", WORD, 67),
    ("GRAFANA_TOKEN", "glsa_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF_", HEX, 8),
    ("ATLASSIAN_TOKEN", "ATATT3", URL, 180),
    ("AGE_KEY", "AGE-SECRET-KEY-1", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    ("JWT", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.", URL, 43),
    ("SOURCEGRAPH_TOKEN", "sgp_local_", HEX, 40),
    ("HARNESS_KEY", "pat.aB3dE5gH7jK9mN1pQ3sT5v.aB3dE5gH7jK9mN1pQ3sT5vW7.", WORD, 20),
    ("YANDEX_TOKEN", "t1.a1B2c3D4e5.", URL, 86),
    ("YANDEX_TOKEN", "YCAJE", WORD, 35),
    ("CLOUDFLARE_KEY", "v1.0-0123456789abcdef01234567-", HEX, 146),
    ("AIRTABLE_TOKEN", "patA1b2C3d4E5f6G7.", HEX, 64),
    ("DYNATRACE_TOKEN", "dt0c01.Q7WZKB41XMRD8HPTV6NCYE53.", UPPER, 64),
    ("SQUARE_TOKEN", "sq0atp-", URL, 22),
    ("SQUARE_TOKEN", "EAAAE", WORD, 59),
    ("FACEBOOK_TOKEN", "EAAC", WORD, 160),
    ("PORTAINER_TOKEN", "ptr_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3hJ5kL7nP9q=", "", 0),
    ("FLUTTERWAVE_KEY", "FLWSECK_TEST-", HEX, 32),
    ("PLAID_TOKEN", "access-sandbox-1c2d3e4f-5a6b-4c7d-8e9f-", HEX, 12),
    ("SLACK_WEBHOOK", "hooks.slack.com/services/T0ABCDEF1/B0ABCDEF2/", WORD, 24),
    (
        "TEAMS_WEBHOOK",
        "webhookb2/1c2d3e4f-5a6b-4c7d-8e9f-0a1b2c3d4e5f@1c2d3e4f-5a6b-4c7d-8e9f-0a1b2c3d4e5f/IncomingWebhook/0123456789abcdef0123456789abcdef/1c2d3e4f-5a6b-4c7d-8e9f-",
        HEX,
        12,
    ),
    ("DISCORD_WEBHOOK", "discord.com/api/webhooks/123456789012345678/", URL, 68),
    ("HUBSPOT_TOKEN", "pat-na1-1c2d3e4f-5a6b-4c7d-8e9f-", HEX, 12),
    ("MAPBOX_TOKEN", "sk.eyJ1IjoibWUiLCJhIjoiY2sxMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMyJ9.", WORD, 22),
    ("ONEPASSWORD_KEY", "A3-Q7WZKB-41XMRD-8HPTV-6NCYE-53GLS-", UPPER, 5),
    ("DOPPLER_TOKEN", "dp.pt.", WORD, 43),
    ("AUTHRESS_KEY", "sc_a1B2c3D4e5F6.a1b2.acc_0123456789ab.", WORD, 60),
    ("FIREBASE_KEY", "AAAAa1B2c3D:APA91b", URL, 134),
    ("RESEND_KEY", "re_aB3dE5gH_", WORD, 24),
    ("CLICKUP_TOKEN", "pk_12345678_", UPPER, 32),
    ("AXIOM_TOKEN", "xaat-1c2d3e4f-5a6b-4c7d-8e9f-", HEX, 12),
    ("LANGFUSE_KEY", "sk-lf-1c2d3e4f-5a6b-4c7d-8e9f-", HEX, 12),
    ("TELEGRAM_TOKEN", "110201543:AA", WORD, 33),
    ("AZURE_SECRET", "aB38Q~", WORD, 34),
    ("MAXMIND_KEY", "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", "", 0),
    ("MAILCHIMP_KEY", "0123456789abcdef0123456789abcdef-us", "123456789", 2),
    ("FACEBOOK_TOKEN", "123456789012345|", WORD, 27),
    ("DISCORD_TOKEN", "MTIzNDU2Nzg5MDEyMzQ1Njc4.GhIjKl.", URL, 38),
];

/// A token of each kind, none real.
fn listed() -> Vec<(&'static str, String)> {
    let mut dice = SeededRandom(0xC0FFEE);
    let token = |(name, prefix, set, length): &(&'static str, &str, &str, usize)| {
        (*name, format!("{prefix}{}", dice.text(set, *length)))
    };
    ISSUED.iter().map(token).collect()
}

/// The same, and the shortest of each plain shape.
pub(super) fn issued() -> Vec<(&'static str, String)> {
    let (mut dice, mut issued) = (SeededRandom(0x1550), listed());
    for shape in token_shapes::SHAPES {
        let (ShapeBody::Of(set, length, _) | ShapeBody::Exactly(set, length)) = shape.body else { continue };
        let alphabet: String = (b'0'..=b'z').filter(|byte| set.has(*byte)).map(char::from).collect();
        let alphabet = alphabet.replace(['.', '='], "");
        issued.push((shape.name, format!("{}{}", shape.prefix, dice.text(&alphabet, length))));
    }
    issued
}

fn no_secrets() -> Redactor {
    Redactor::new(&[]).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns the tokens that can be read after `scrub`.
fn missed(scrub: &dyn Fn(&str) -> String) -> Vec<String> {
    let mut missed = Vec::new();
    for (name, token) in issued() {
        for (before, after) in [
            ("", ""),
            ("key: ", "."),
            ("TOKEN=", "\n"),
            ("\"", "\""),
            ("https://u:", "@host/"),
            ("\\n", "\\n"),
        ] {
            let seen = scrub(&format!("{before}{token}{after}"));
            // A final dot may belong to the token.
            let expected = format!("{before}[REDACTED:{name}]{after}");
            if seen != expected && seen != expected.trim_end_matches('.') {
                missed.push(format!("{name}: {seen}"));
            }
        }
    }
    missed
}

#[test]
fn every_kind_is_masked_wherever_it_stands() {
    let ours = no_secrets();
    assert_eq!(missed(&|text| ours.scrub(text).into_owned()), [""; 0]);
    // Control: a redactor with a single shape fails.
    let weak = |text: &str| match text.find("ghp_") {
        Some(at) => format!("{}[REDACTED:GITHUB_TOKEN]{}", &text[..at], &text[at + 40..]),
        None => text.to_owned(),
    };
    assert!(missed(&weak).len() > ISSUED.len());
    let listed: Vec<&str> = issued().iter().map(|(name, ..)| *name).collect();
    let untested = token_shapes::SHAPES.iter().map(|shape| shape.name).chain(token_shapes::UNPREFIXED);
    let untested: Vec<&str> = untested.filter(|name| !listed.contains(name)).collect();
    // These need their context.
    assert_eq!(untested, ["PRIVATE_KEY", "SIDEKIQ_LOGIN"]);
    let login = "https://cafe0123:beef4567@gems.contribsys.com/";
    assert_eq!(ours.scrub(login), "https://[REDACTED:SIDEKIQ_LOGIN]@gems.contribsys.com/");
}

#[test]
fn encoded_tokens_are_masked_too() {
    use base64::Engine;
    let ours = no_secrets();
    for (name, token) in issued() {
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("user:{token}"));
        let seen = ours.scrub(&basic).into_owned();
        assert!(seen.contains("[REDACTED:"), "{name}: {seen}");
    }
}

#[test]
fn only_our_own_are_masked_if_so_wished() {
    let ours = no_secrets().with_shapes(TokenShapes::Leave);
    for (name, token) in issued() {
        assert_eq!(ours.scrub(&token) == token.as_str(), name != "CLIENT_TOKEN", "{name}");
    }
}

#[test]
fn what_only_resembles_a_token_is_left_alone() {
    let ours = no_secrets();
    for text in [
        "ghp_tooshort",
        "sk-learn-is-a-library-for-machine-learning-in-python",
        "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "AKIAXXXXXXXXXXXXXXXX",
        "task-0123456789abcdef0123456789abcdef",
        "eyJhbGciOiJIUzI1NiJ9",
        "example.module.function_name_that_is_long.attribute",
        "-----BEGIN PRIVATE KEY----- and -----END PRIVATE KEY----- frame it",
        "-----BEGIN CERTIFICATE-----\nMIIB0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklm\n-----END CERTIFICATE-----",
        "12345678:AAtoo-short-to-be-a-token",
        "data:application/octet-stream;base64,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/EAAAAFAAAAB4nGNgYGAEYgAABQABJ1hd/EAABa1B2c3D4e5F6g7H8i9J0k1L2m3N4/AAAA",
        "gl-matrix-and-other-libraries-of-2024 dp.setAttribute1 s.someFieldName1234567890Abcd",
    ] {
        assert_eq!(ours.scrub(text), text);
    }
}

#[test]
fn private_keys_are_masked_with_their_frame() {
    let ours = no_secrets();
    let body = SeededRandom(7).text(WORD, 64 * 5);
    for kind in ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "] {
        for end in ["\n", "\\n"] {
            let key =
                format!("-----BEGIN {kind}PRIVATE KEY-----{end}{body}{end}-----END {kind}PRIVATE KEY-----");
            assert_eq!(ours.scrub(&format!("a {key} b")), "a [REDACTED:PRIVATE_KEY] b");
            let cut = &key[..key.len() - 100];
            assert_eq!(ours.scrub(cut), "[REDACTED:PRIVATE_KEY]");
        }
    }
    let block = format!(
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{body}\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----\n"
    );
    assert_eq!(ours.scrub(&block), "[REDACTED:PRIVATE_KEY]\n");
}

#[derive(Deserialize)]
pub(super) struct Rule {
    pub(super) id: String,
    pub(super) regex: Option<String>,
    keywords: Option<Vec<String>>,
}

impl Rule {
    fn knows(&self, token: &str) -> bool {
        let (small, text) = (token.to_lowercase(), format!("key = \"{token}\"\n"));
        // Compiling the expression takes much longer than running it.
        self.keywords.iter().flatten().any(|keyword| small.contains(keyword))
            && self.regex.as_deref().is_some_and(|regex| {
                let regex = regex::bytes::RegexBuilder::new(regex).unicode(false).build();
                regex.is_ok_and(|regex| regex.is_match(text.as_bytes()))
            })
    }
}

/// Tokens that the other list lacks, knows only next to the provider's name, or checks by a checksum.
const ONLY_OURS: &[&str] = &[
    "CLIENT_TOKEN",
    "GOOGLE_OAUTH_SECRET",
    "GOOGLE_OAUTH_TOKEN",
    "STRIPE_WEBHOOK_SECRET",
    "ANTHROPIC_KEY",
    "OPENROUTER_KEY",
    "OPENAI_KEY",
    "CRATES_IO_TOKEN",
    "DOCKER_TOKEN",
    "HUGGINGFACE_TOKEN",
    "MAILGUN_KEY",
    "NOTION_TOKEN",
    "TERRAFORM_TOKEN",
    "ATLASSIAN_TOKEN",
    "YANDEX_TOKEN",
    "AIRTABLE_TOKEN",
    "PORTAINER_TOKEN",
    "PLAID_TOKEN",
    "TEAMS_WEBHOOK",
    "DISCORD_WEBHOOK",
    "HUBSPOT_TOKEN",
    "MAPBOX_TOKEN",
    "FIREBASE_KEY",
    "RESEND_KEY",
    "CLICKUP_TOKEN",
    "AXIOM_TOKEN",
    "LANGFUSE_KEY",
    "TELEGRAM_TOKEN",
    "MAILCHIMP_KEY",
    "FACEBOOK_TOKEN",
    "DISCORD_TOKEN",
];

/// Cross-check with another list of shapes; where it disagrees, ours may be wrong.
#[test]
fn another_list_agrees() {
    let Some(rules) = shared::<Rule>("gitleaks_rules.jsonl") else { return };
    let mut strange = Vec::new();
    for (name, token) in listed() {
        match rules.iter().find(|rule| !rule.id.starts_with("generic") && rule.knows(&token)) {
            Some(rule) => println!("{name}: {}", rule.id),
            None => strange.push(name),
        }
    }
    strange.dedup();
    assert_eq!(strange, ONLY_OURS);
    // Control: it does not accept tokens with only the prefix.
    assert!(!rules.iter().any(|rule| rule.knows("ghp_short") || rule.knows("glpat-short")));
}
