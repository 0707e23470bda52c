//! Token shapes of well-known providers, from their published formats.

use super::token_shapes::{CharacterSet, Shape, ShapeBody, is_random};

const fn shape(name: &'static str, prefix: &'static str, body: ShapeBody) -> Shape {
    Shape { name, prefix, body, any_case: false }
}

const fn any_case(name: &'static str, prefix: &'static str, body: ShapeBody) -> Shape {
    Shape { name, prefix, body, any_case: true }
}

const fn of(set: CharacterSet, min: usize, max: usize) -> ShapeBody {
    ShapeBody::Of(set, min, max)
}

const fn only(set: CharacterSet, count: usize) -> ShapeBody {
    ShapeBody::Of(set, count, count)
}

/// The number of Portcullis' own shapes, which are always masked.
pub(super) const OWN: usize = 1;

/// The maximum length of a token.
const LONG: usize = 4000;

pub(super) const SHAPES: &[Shape] = &[
    // Portcullis: 32 random bytes.
    shape("CLIENT_TOKEN", "pcl_", ShapeBody::Exactly(CharacterSet::Url, 43)),
    // Source code and CI.
    shape("GITHUB_TOKEN", "ghp_", of(CharacterSet::Word, 36, 251)),
    shape("GITHUB_TOKEN", "gho_", of(CharacterSet::Word, 36, 251)),
    shape("GITHUB_TOKEN", "ghu_", of(CharacterSet::Word, 36, 251)),
    shape("GITHUB_TOKEN", "ghs_", of(CharacterSet::Dotted, 36, 1024)),
    shape("GITHUB_TOKEN", "ghr_", of(CharacterSet::Word, 36, 251)),
    shape("GITHUB_TOKEN", "github_pat_", of(CharacterSet::Url, 60, 251)),
    shape("GITLAB_TOKEN", "gl", ShapeBody::Check(gitlab)),
    shape("GITLAB_TOKEN", "GR1348941", of(CharacterSet::Url, 20, 50)),
    shape("GITLAB_SESSION", "_gitlab_session=", only(CharacterSet::Word, 32)),
    shape("BITBUCKET_TOKEN", "ATBB", only(CharacterSet::Word, 32)),
    shape("BITBUCKET_TOKEN", "ATCTT3", of(CharacterSet::Base64, 100, 300)),
    shape("SOURCEGRAPH_TOKEN", "sgp_", ShapeBody::Check(sourcegraph)),
    shape("SOURCEGRAPH_TOKEN", "slk_", only(CharacterSet::Hex, 64)),
    any_case("NPM_TOKEN", "npm_", only(CharacterSet::Word, 36)),
    shape("PYPI_TOKEN", "pypi-AgE", of(CharacterSet::Url, 50, LONG)),
    shape("CRATES_IO_TOKEN", "cio", only(CharacterSet::Word, 32)),
    shape("RUBYGEMS_KEY", "rubygems_", only(CharacterSet::Hex, 48)),
    shape("NUGET_KEY", "oy2", only(CharacterSet::Word, 43)),
    any_case("CLOJARS_TOKEN", "CLOJARS_", only(CharacterSet::Word, 60)),
    shape("DOCKER_TOKEN", "dckr_pat_", of(CharacterSet::Url, 27, 64)),
    shape("DOCKER_TOKEN", "dckr_oat_", of(CharacterSet::Url, 27, 64)),
    shape("ARTIFACTORY_KEY", "AKCp", only(CharacterSet::Word, 69)),
    shape("ARTIFACTORY_TOKEN", "cmVmd", only(CharacterSet::Word, 59)),
    shape("SONAR_TOKEN", "squ_", only(CharacterSet::Hex, 40)),
    shape("SONAR_TOKEN", "sqp_", only(CharacterSet::Hex, 40)),
    shape("SONAR_TOKEN", "sqa_", only(CharacterSet::Hex, 40)),
    shape("BUILDKITE_TOKEN", "bkua_", only(CharacterSet::Hex, 40)),
    shape("CIRCLECI_TOKEN", "CCIPAT_", of(CharacterSet::Url, 40, 80)),
    shape("HARNESS_KEY", "pat.", ShapeBody::Check(harness)),
    shape("HARNESS_KEY", "sat.", ShapeBody::Check(harness)),
    shape("OCTOPUS_KEY", "API-", only(CharacterSet::Upper, 26)),
    shape("ENDOR_KEY", "endr+", only(CharacterSet::Url, 16)),
    shape("POSTMAN_KEY", "PMAK-", only(CharacterSet::Url, 59)),
    shape("README_KEY", "rdme_", only(CharacterSet::Word, 70)),
    shape("PREFECT_KEY", "pnu_", only(CharacterSet::Word, 36)),
    shape("PREFECT_KEY", "pnb_", only(CharacterSet::Word, 36)),
    shape("PULUMI_TOKEN", "pul-", only(CharacterSet::Hex, 40)),
    shape("INFRACOST_KEY", "ico-", only(CharacterSet::Word, 32)),
    shape("BUILDKITE_TOKEN", "bkaj_", of(CharacterSet::Word, 32, 64)),
    shape("SOURCEGRAPH_TOKEN", "sgd_", only(CharacterSet::Hex, 64)),
    shape("PACKAGIST_TOKEN", "packagist_", of(CharacterSet::Url, 40, 100)),
    shape("VERCEL_TOKEN", "vercel_blob_rw_", of(CharacterSet::Url, 30, 80)),
    shape("VERCEL_TOKEN", "vcp_", of(CharacterSet::Word, 40, 80)),
    shape("VERCEL_TOKEN", "vck_", of(CharacterSet::Word, 40, 80)),
    shape("DBT_TOKEN", "dbtc_", of(CharacterSet::Url, 30, 80)),
    shape("DBT_TOKEN", "dbtu_", of(CharacterSet::Url, 30, 80)),
    shape("APIFY_TOKEN", "apify_api_", of(CharacterSet::Word, 30, 50)),
    shape("GITBOOK_TOKEN", "gb_api_", of(CharacterSet::Word, 30, 60)),
    shape("PORTAINER_TOKEN", "ptr_", ShapeBody::Check(portainer)),
    shape("SWARM_TOKEN", "SWMTKN-1-", of(CharacterSet::Url, 60, 90)),
    // Clouds.
    shape("AWS_KEY_ID", "AKIA", only(CharacterSet::Upper, 16)),
    shape("AWS_KEY_ID", "ASIA", only(CharacterSet::Upper, 16)),
    shape("AWS_KEY_ID", "ABIA", only(CharacterSet::Upper, 16)),
    shape("AWS_KEY_ID", "ACCA", only(CharacterSet::Upper, 16)),
    shape("AWS_KEY_ID", "A3T", only(CharacterSet::Upper, 17)),
    shape("AWS_BEDROCK_KEY", "ABSK", of(CharacterSet::Base64, 109, 271)),
    shape("AWS_BEDROCK_KEY", "bedrock-api-key-", of(CharacterSet::Base64, 28, LONG)),
    shape("ALIBABA_KEY_ID", "LTAI", of(CharacterSet::Word, 16, 20)),
    shape("TENCENT_KEY_ID", "AKID", only(CharacterSet::Word, 32)),
    shape("VOLCENGINE_KEY_ID", "AKLT", of(CharacterSet::Word, 40, 60)),
    shape("SCALEWAY_KEY_ID", "SCW", only(CharacterSet::Upper, 17)),
    shape("AZURE_STORAGE_KEY", "AccountKey=", only(CharacterSet::Base64, 88)),
    shape("AZURE_ACCESS_KEY", "SharedAccessKey=", only(CharacterSet::Base64, 44)),
    shape("AZURE_SIGNATURE", "sig=", only(CharacterSet::Base64, 44)),
    shape("FIREBASE_KEY", "AAAA", ShapeBody::Check(firebase)),
    shape("RENDER_KEY", "rnd_", of(CharacterSet::Word, 28, 40)),
    shape("GOOGLE_API_KEY", "AIza", only(CharacterSet::Url, 35)),
    shape("GOOGLE_OAUTH_SECRET", "GOCSPX-", only(CharacterSet::Url, 28)),
    shape("GOOGLE_OAUTH_TOKEN", "ya29.", of(CharacterSet::Url, 30, 2048)),
    shape("GOOGLE_OAUTH_TOKEN", "1//0", of(CharacterSet::Url, 60, 160)),
    shape("YANDEX_TOKEN", "t1.", ShapeBody::Check(yandex)),
    shape("YANDEX_TOKEN", "AQVN", of(CharacterSet::Url, 35, 38)),
    shape("YANDEX_TOKEN", "YC", ShapeBody::Check(yandex_static)),
    shape("DIGITALOCEAN_TOKEN", "dop_v1_", only(CharacterSet::Hex, 64)),
    shape("DIGITALOCEAN_TOKEN", "doo_v1_", only(CharacterSet::Hex, 64)),
    any_case("DIGITALOCEAN_TOKEN", "dor_v1_", only(CharacterSet::Hex, 64)),
    shape("CLOUDFLARE_KEY", "v1.0-", ShapeBody::Check(cloudflare)),
    shape("HEROKU_KEY", "HRKU-AA", only(CharacterSet::Url, 58)),
    shape("SCALINGO_TOKEN", "tk-us-", only(CharacterSet::Url, 48)),
    shape("FLY_TOKEN", "fo1_", only(CharacterSet::Url, 43)),
    shape("FLY_TOKEN", "fm1a_", of(CharacterSet::Base64, 100, LONG)),
    shape("FLY_TOKEN", "fm1r_", of(CharacterSet::Base64, 100, LONG)),
    shape("FLY_TOKEN", "fm2_", of(CharacterSet::Base64, 100, LONG)),
    shape("NETLIFY_TOKEN", "nfp_", of(CharacterSet::Word, 36, 40)),
    shape("OPENSHIFT_TOKEN", "sha256~", only(CharacterSet::Url, 43)),
    shape("TAILSCALE_KEY", "tskey-", of(CharacterSet::Url, 20, 90)),
    shape("DEFINED_NETWORKING_KEY", "dnkey-", of(CharacterSet::Loose, 79, 79)),
    // Data.
    shape("DATABRICKS_TOKEN", "dapi", only(CharacterSet::Hex, 32)),
    shape("PLANETSCALE_TOKEN", "pscale_tkn_", of(CharacterSet::Loose, 32, 64)),
    shape("PLANETSCALE_TOKEN", "pscale_oauth_", of(CharacterSet::Loose, 32, 64)),
    any_case("PLANETSCALE_TOKEN", "pscale_pw_", of(CharacterSet::Loose, 32, 64)),
    shape("SUPABASE_TOKEN", "sbp_", only(CharacterSet::Hex, 40)),
    shape("SUPABASE_TOKEN", "sb_secret_", of(CharacterSet::Url, 22, 60)),
    shape("CLICKHOUSE_KEY", "4b1d", only(CharacterSet::Word, 38)),
    shape("NEON_KEY", "napi_", only(CharacterSet::Word, 64)),
    shape("CONFLUENT_SECRET", "cflt", only(CharacterSet::Base64, 60)),
    shape("ATLAS_SECRET", "mdb_sa_sk_", of(CharacterSet::Url, 38, 50)),
    shape("ELASTIC_KEY", "essu_", of(CharacterSet::Base64, 60, 120)),
    shape("AIRTABLE_TOKEN", "pat", ShapeBody::Check(airtable)),
    shape("CONTENTFUL_TOKEN", "CFPAT-", only(CharacterSet::Url, 43)),
    shape("SETTLEMINT_TOKEN", "sm_aat_", only(CharacterSet::Word, 16)),
    shape("SETTLEMINT_TOKEN", "sm_pat_", only(CharacterSet::Word, 16)),
    shape("SETTLEMINT_TOKEN", "sm_sat_", only(CharacterSet::Word, 16)),
    // Monitoring.
    any_case("GRAFANA_TOKEN", "glsa_", only(CharacterSet::Url, 41)),
    any_case("GRAFANA_TOKEN", "glc_", of(CharacterSet::Base64, 32, 403)),
    any_case("GRAFANA_TOKEN", "eyJrIjoi", of(CharacterSet::Base64, 70, 403)),
    shape("SENTRY_TOKEN", "sntrys_", of(CharacterSet::Base64, 60, 600)),
    shape("SENTRY_TOKEN", "sntryu_", only(CharacterSet::Hex, 64)),
    shape("DYNATRACE_TOKEN", "dt0", ShapeBody::Check(dynatrace)),
    shape("NEWRELIC_KEY", "NRAK-", only(CharacterSet::Word, 27)),
    shape("NEWRELIC_KEY", "NRII-", only(CharacterSet::Url, 32)),
    shape("NEWRELIC_KEY", "NRJS-", only(CharacterSet::Hex, 19)),
    shape("HONEYCOMB_KEY", "hcaik_", of(CharacterSet::Word, 58, 64)),
    shape("HONEYCOMB_KEY", "hcbik_", of(CharacterSet::Word, 58, 64)),
    shape("AXIOM_TOKEN", "xaat-", ShapeBody::Check(uuid)),
    shape("AXIOM_TOKEN", "xapt-", ShapeBody::Check(uuid)),
    shape("POSTHOG_KEY", "phx_", of(CharacterSet::Word, 32, 60)),
    // AI models.
    shape("ANTHROPIC_KEY", "sk-ant-", of(CharacterSet::Url, 32, 256)),
    shape("OPENROUTER_KEY", "sk-or-v1-", only(CharacterSet::Hex, 64)),
    shape("OPENAI_KEY", "sk-proj-", of(CharacterSet::Url, 40, 256)),
    shape("OPENAI_KEY", "sk-svcacct-", of(CharacterSet::Url, 40, 256)),
    shape("OPENAI_KEY", "sk-admin-", of(CharacterSet::Url, 40, 256)),
    shape("OPENAI_KEY", "sk-", of(CharacterSet::Word, 32, 64)),
    shape("HUGGINGFACE_TOKEN", "hf_", of(CharacterSet::Word, 34, 40)),
    shape("HUGGINGFACE_TOKEN", "api_org_", of(CharacterSet::Word, 34, 40)),
    shape("PERPLEXITY_KEY", "pplx-", only(CharacterSet::Word, 48)),
    shape("GROQ_KEY", "gsk_", only(CharacterSet::Word, 52)),
    shape("XAI_KEY", "xai-", only(CharacterSet::Word, 80)),
    shape("REPLICATE_TOKEN", "r8_", only(CharacterSet::Word, 37)),
    shape("LANGSMITH_KEY", "lsv2_", of(CharacterSet::Url, 40, 60)),
    shape("PINECONE_KEY", "pcsk_", of(CharacterSet::Url, 60, 80)),
    shape("ELEVENLABS_KEY", "sk_", only(CharacterSet::Hex, 48)),
    shape("NVIDIA_KEY", "nvapi-", of(CharacterSet::Url, 60, 80)),
    shape("CEREBRAS_KEY", "csk-", of(CharacterSet::Word, 40, 60)),
    shape("FIREWORKS_KEY", "fw_", of(CharacterSet::Word, 22, 40)),
    shape("TAVILY_KEY", "tvly-", of(CharacterSet::Url, 28, 60)),
    shape("FIRECRAWL_KEY", "fc-", only(CharacterSet::Hex, 32)),
    shape("JINA_KEY", "jina_", of(CharacterSet::Url, 50, 70)),
    shape("E2B_KEY", "e2b_", only(CharacterSet::Hex, 40)),
    shape("LANGFUSE_KEY", "sk-lf-", ShapeBody::Check(uuid)),
    shape("RUNPOD_KEY", "rpa_", of(CharacterSet::Word, 40, 60)),
    shape("KAGGLE_TOKEN", "KGAT_", of(CharacterSet::Word, 32, 64)),
    shape("WANDB_KEY", "wandb_v1_", of(CharacterSet::Url, 40, 120)),
    // Payments and commerce.
    shape("STRIPE_KEY", "sk_live_", of(CharacterSet::Word, 10, 256)),
    shape("STRIPE_KEY", "sk_test_", of(CharacterSet::Word, 10, 256)),
    shape("STRIPE_KEY", "sk_prod_", of(CharacterSet::Word, 10, 256)),
    shape("STRIPE_KEY", "rk_live_", of(CharacterSet::Word, 10, 256)),
    shape("STRIPE_KEY", "rk_test_", of(CharacterSet::Word, 10, 256)),
    shape("STRIPE_KEY", "rk_prod_", of(CharacterSet::Word, 10, 256)),
    shape("STRIPE_WEBHOOK_SECRET", "whsec_", of(CharacterSet::Base64, 32, 128)),
    shape("SQUARE_TOKEN", "EAAA", ShapeBody::Check(square_access)),
    shape("SQUARE_TOKEN", "sq0", ShapeBody::Check(square)),
    shape("FLUTTERWAVE_KEY", "FLW", ShapeBody::Check(flutterwave)),
    shape("PLAID_TOKEN", "access-", ShapeBody::Check(plaid)),
    shape("SHOPIFY_TOKEN", "shpat_", only(CharacterSet::Hex, 32)),
    shape("SHOPIFY_TOKEN", "shpca_", only(CharacterSet::Hex, 32)),
    shape("SHOPIFY_TOKEN", "shppa_", only(CharacterSet::Hex, 32)),
    shape("SHOPIFY_TOKEN", "shpss_", only(CharacterSet::Hex, 32)),
    shape("SHIPPO_TOKEN", "shippo_live_", only(CharacterSet::Hex, 40)),
    shape("SHIPPO_TOKEN", "shippo_test_", only(CharacterSet::Hex, 40)),
    shape("EASYPOST_KEY", "EZAK", only(CharacterSet::Word, 54)),
    shape("EASYPOST_KEY", "EZTK", only(CharacterSet::Word, 54)),
    shape("DUFFEL_TOKEN", "duffel_live_", only(CharacterSet::Loose, 43)),
    shape("DUFFEL_TOKEN", "duffel_test_", only(CharacterSet::Loose, 43)),
    shape("LOB_KEY", "live_", only(CharacterSet::Hex, 35)),
    shape("LOB_KEY", "test_", only(CharacterSet::Hex, 35)),
    shape("LOB_KEY", "live_pub_", only(CharacterSet::Hex, 31)),
    shape("LOB_KEY", "test_pub_", only(CharacterSet::Hex, 31)),
    shape("PADDLE_KEY", "pdl_live_apikey_", of(CharacterSet::Url, 40, 80)),
    shape("PADDLE_KEY", "pdl_sdbx_apikey_", of(CharacterSet::Url, 40, 80)),
    shape("SHOPIFY_TOKEN", "shptka_", only(CharacterSet::Hex, 32)),
    shape("SHOPIFY_TOKEN", "shprt_", only(CharacterSet::Hex, 32)),
    shape("SHOPIFY_TOKEN", "shpua_", only(CharacterSet::Hex, 32)),
    // Messaging.
    any_case("SLACK_TOKEN", "xox", ShapeBody::Check(slack)),
    any_case("SLACK_TOKEN", "xapp-", ShapeBody::Check(slack_app)),
    shape("SLACK_TOKEN", "xwfp-", of(CharacterSet::Url, 20, 300)),
    shape("SLACK_WEBHOOK", "hooks.slack.com/", ShapeBody::Check(slack_webhook)),
    shape("TEAMS_WEBHOOK", "webhookb2/", ShapeBody::Check(teams)),
    shape("DISCORD_WEBHOOK", "discord.com/api/webhooks/", ShapeBody::Check(discord_webhook)),
    shape("DISCORD_WEBHOOK", "discordapp.com/api/webhooks/", ShapeBody::Check(discord_webhook)),
    shape("FACEBOOK_TOKEN", "EAA", ShapeBody::Check(facebook_page)),
    shape("TWILIO_KEY", "SK", only(CharacterSet::Hex, 32)),
    shape("SENDGRID_KEY", "SG.", only(CharacterSet::Loose, 66)),
    shape("BREVO_KEY", "xkeysib-", only(CharacterSet::Url, 81)),
    shape("BREVO_KEY", "xsmtpsib-", only(CharacterSet::Url, 81)),
    shape("MAILGUN_KEY", "key-", only(CharacterSet::Hex, 32)),
    shape("MAILGUN_KEY", "pubkey-", only(CharacterSet::Hex, 32)),
    shape("RESEND_KEY", "re_", ShapeBody::Check(resend)),
    shape("INSTAGRAM_TOKEN", "IGQV", of(CharacterSet::Url, 80, 400)),
    shape("INSTAGRAM_TOKEN", "IGAA", of(CharacterSet::Url, 80, 400)),
    // Productivity.
    shape("ATLASSIAN_TOKEN", "ATATT3", of(CharacterSet::Base64, 100, 300)),
    shape("LINEAR_KEY", "lin_api_", only(CharacterSet::Word, 40)),
    shape("LINEAR_KEY", "lin_oauth_", of(CharacterSet::Word, 40, 64)),
    shape("TRELLO_TOKEN", "ATTA", only(CharacterSet::Hex, 72)),
    shape("CLICKUP_TOKEN", "pk_", ShapeBody::Check(clickup)),
    shape("INTERCOM_TOKEN", "dG9rOi", of(CharacterSet::Base64, 54, 54)),
    shape("STYTCH_SECRET", "secret-live-", of(CharacterSet::Base64, 36, 60)),
    shape("STYTCH_SECRET", "secret-test-", of(CharacterSet::Base64, 36, 60)),
    shape("ORY_TOKEN", "ory_pat_", of(CharacterSet::Url, 32, 100)),
    shape("ORY_TOKEN", "ory_st_", of(CharacterSet::Url, 32, 100)),
    shape("ORY_TOKEN", "ory_at_", of(CharacterSet::Loose, 32, 200)),
    shape("NOTION_TOKEN", "ntn_", of(CharacterSet::Word, 40, 50)),
    shape("NOTION_TOKEN", "secret_", only(CharacterSet::Word, 43)),
    shape("FIGMA_TOKEN", "figd_", of(CharacterSet::Url, 38, 60)),
    shape("FRAMEIO_TOKEN", "fio-u-", only(CharacterSet::Loose, 64)),
    shape("TYPEFORM_TOKEN", "tfp_", of(CharacterSet::Loose, 40, 70)),
    shape("HUBSPOT_TOKEN", "pat-", ShapeBody::Check(hubspot)),
    shape("ADOBE_SECRET", "p8e-", only(CharacterSet::Word, 32)),
    shape("ADAFRUIT_KEY", "aio_", only(CharacterSet::Word, 28)),
    shape("MAPBOX_TOKEN", "pk.eyJ", ShapeBody::Check(mapbox)),
    shape("MAPBOX_TOKEN", "sk.eyJ", ShapeBody::Check(mapbox)),
    shape("DROPBOX_TOKEN", "sl.", of(CharacterSet::Loose, 130, LONG)),
    shape("INTRA42_SECRET", "s-s4t2ud-", only(CharacterSet::Hex, 64)),
    shape("INTRA42_SECRET", "s-s4t2af-", only(CharacterSet::Hex, 64)),
    // Keys and secret managers.
    shape("ONEPASSWORD_KEY", "A3-", ShapeBody::Check(onepassword)),
    shape("ONEPASSWORD_TOKEN", "ops_eyJ", of(CharacterSet::Base64, 250, LONG)),
    shape("DOPPLER_TOKEN", "dp.", ShapeBody::Check(doppler)),
    shape("VAULT_TOKEN", "hvs.", of(CharacterSet::Url, 24, 256)),
    shape("VAULT_TOKEN", "hvb.", of(CharacterSet::Url, 100, 400)),
    shape("VAULT_TOKEN", "hvr.", of(CharacterSet::Url, 24, 256)),
    shape("VAULT_TOKEN", "s.", ShapeBody::Check(vault_service)),
    shape("TERRAFORM_TOKEN", "atlasv1.", of(CharacterSet::Base64, 60, 80)),
    shape("AUTHRESS_KEY", "sc_", ShapeBody::Check(authress)),
    shape("AUTHRESS_KEY", "ext_", ShapeBody::Check(authress)),
    shape("AUTHRESS_KEY", "scauth_", ShapeBody::Check(authress)),
    shape("AUTHRESS_KEY", "authress_", ShapeBody::Check(authress)),
    shape("AGE_KEY", "AGE-SECRET-KEY-1", only(CharacterSet::Upper, 58)),
    shape("NOSTR_KEY", "nsec1", only(CharacterSet::Word, 58)),
    shape("WALLET_KEY", "xprv", only(CharacterSet::Word, 107)),
    shape("PASETO", "v2.local.", of(CharacterSet::Loose, 60, LONG)),
    shape("PASETO", "v3.local.", of(CharacterSet::Loose, 60, LONG)),
    shape("PASETO", "v4.local.", of(CharacterSet::Loose, 60, LONG)),
    shape("PASETO", "v2.public.", of(CharacterSet::Loose, 60, LONG)),
    shape("PASETO", "v3.public.", of(CharacterSet::Loose, 60, LONG)),
    shape("PASETO", "v4.public.", of(CharacterSet::Loose, 60, LONG)),
    shape("JWT", "ey", ShapeBody::Check(jwt)),
    shape("JWT", "ZXlK", ShapeBody::Check(jwt_in_base64)),
];

/// Matches parts joined by separators, each with its allowed length.
struct Parts<'t> {
    rest: &'t [u8],
    taken: usize,
}

impl<'t> Parts<'t> {
    fn new(rest: &'t [u8]) -> Parts<'t> {
        Parts { rest, taken: 0 }
    }

    fn part(mut self, set: CharacterSet, min: usize, max: usize) -> Option<Parts<'t>> {
        let length = set.length(self.rest);
        (self.rest, self.taken) = (&self.rest[length..], self.taken + length);
        (min..=max).contains(&length).then_some(self)
    }

    fn text(mut self, text: &str) -> Option<Parts<'t>> {
        self.rest = self.rest.strip_prefix(text.as_bytes())?;
        self.taken += text.len();
        Some(self)
    }

    fn any(mut self, texts: &[&str]) -> Option<Parts<'t>> {
        let text = texts.iter().find(|text| self.rest.starts_with(text.as_bytes()))?;
        (self.rest, self.taken) = (&self.rest[text.len()..], self.taken + text.len());
        Some(self)
    }

    fn uuid(self) -> Option<Parts<'t>> {
        let mut parts = self.part(CharacterSet::Word, 8, 8)?;
        for length in [4, 4, 4, 12] {
            parts = parts.text("-")?.part(CharacterSet::Word, length, length)?;
        }
        Some(parts)
    }

    /// Returns the total length, if the text looks random.
    fn drawn(self, whole: &[u8]) -> Option<usize> {
        is_random(&whole[..self.taken]).then_some(self.taken)
    }
}

fn uuid(rest: &[u8]) -> Option<usize> {
    Parts::new(rest).uuid()?.drawn(rest)
}

fn firebase(rest: &[u8]) -> Option<usize> {
    Parts::new(rest)
        .part(CharacterSet::Url, 7, 7)?
        .text(":APA91b")?
        .part(CharacterSet::Url, 100, 200)?
        .drawn(rest)
}

fn resend(rest: &[u8]) -> Option<usize> {
    let parts =
        Parts::new(rest).part(CharacterSet::Word, 8, 8)?.text("_")?.part(CharacterSet::Word, 22, 26)?;
    is_mixed(&rest[..parts.taken]).then_some(parts.taken)
}

fn clickup(rest: &[u8]) -> Option<usize> {
    Parts::new(rest)
        .part(CharacterSet::Digit, 5, 12)?
        .text("_")?
        .part(CharacterSet::Upper, 32, 32)?
        .drawn(rest)
}

fn gitlab(rest: &[u8]) -> Option<usize> {
    const KINDS: &[&str] = &[
        "pat-", "dt-", "rt-", "rtr-", "ptt-", "cbt-", "agent-", "oas-", "soat-", "ft-", "imt-", "ffct-",
        "wt-",
    ];
    let parts = Parts::new(rest).any(KINDS)?;
    let kind = parts.taken;
    let parts = parts.part(CharacterSet::Dotted, 20, 330)?;
    is_random(&rest[kind..parts.taken]).then_some(parts.taken)
}

fn sourcegraph(rest: &[u8]) -> Option<usize> {
    let named = Parts::new(rest).any(&["local_"]);
    let numbered = || Parts::new(rest).part(CharacterSet::Hex, 16, 16)?.text("_");
    let parts = named.or_else(numbered).unwrap_or(Parts::new(rest));
    parts.part(CharacterSet::Word, 40, 64)?.drawn(rest)
}

fn harness(rest: &[u8]) -> Option<usize> {
    let parts =
        Parts::new(rest).part(CharacterSet::Url, 22, 22)?.text(".")?.part(CharacterSet::Word, 24, 24)?;
    parts.text(".")?.part(CharacterSet::Word, 20, 20)?.drawn(rest)
}

fn airtable(rest: &[u8]) -> Option<usize> {
    Parts::new(rest).part(CharacterSet::Word, 14, 14)?.text(".")?.part(CharacterSet::Hex, 64, 64)?.drawn(rest)
}

fn hubspot(rest: &[u8]) -> Option<usize> {
    Parts::new(rest).any(&["na1-", "na2-", "eu1-", "ap1-"])?.uuid()?.drawn(rest)
}

fn plaid(rest: &[u8]) -> Option<usize> {
    Parts::new(rest).any(&["sandbox-", "development-", "production-"])?.uuid()?.drawn(rest)
}

fn cloudflare(rest: &[u8]) -> Option<usize> {
    Parts::new(rest)
        .part(CharacterSet::Hex, 24, 24)?
        .text("-")?
        .part(CharacterSet::Hex, 146, 146)?
        .drawn(rest)
}

fn dynatrace(rest: &[u8]) -> Option<usize> {
    let parts = Parts::new(rest).any(&["c01.", "s01.", "s02.", "s04.", "s06.", "s16.", "a01.", "v01."])?;
    let parts = parts.part(CharacterSet::Word, 8, 24)?.text(".")?;
    parts.part(CharacterSet::Word, 64, 64)?.drawn(rest)
}

fn doppler(rest: &[u8]) -> Option<usize> {
    let kinds = ["pt.", "st.", "ct.", "sa.", "scim.", "audit."];
    let parts = Parts::new(rest).any(&kinds)?;
    let kind = parts.taken;
    // A service token may name its environment.
    let named = || {
        Parts::new(&rest[kind..]).part(CharacterSet::Url, 2, 35)?.text(".")?.part(CharacterSet::Word, 40, 44)
    };
    let length =
        Parts::new(&rest[kind..]).part(CharacterSet::Word, 40, 44).or_else(named)?.drawn(&rest[kind..])?;
    Some(kind + length)
}

fn square(rest: &[u8]) -> Option<usize> {
    Parts::new(rest).any(&["atp-", "csp-", "idp-"])?.part(CharacterSet::Url, 22, 60)?.drawn(rest)
}

fn square_access(rest: &[u8]) -> Option<usize> {
    Parts::new(rest)
        .part(CharacterSet::Url, 22, 60)
        .filter(|parts| is_no_data(&rest[..parts.taken]))
        .map(|parts| parts.taken)
}

fn facebook_page(rest: &[u8]) -> Option<usize> {
    Parts::new(rest)
        .part(CharacterSet::Word, 100, 500)
        .filter(|parts| is_no_data(&rest[..parts.taken]))
        .map(|parts| parts.taken)
}

/// Excludes Base64 of numbers, which begins like some tokens but has many zeros.
fn is_no_data(body: &[u8]) -> bool {
    is_mixed(body) && !body.windows(4).any(|four| four == b"AAAA")
}

fn portainer(rest: &[u8]) -> Option<usize> {
    let length = CharacterSet::Base64.length(rest);
    (length == 44 && rest[43] == b'=' && is_mixed(&rest[..43])).then_some(length)
}

fn flutterwave(rest: &[u8]) -> Option<usize> {
    let parts = Parts::new(rest).any(&["SECK_TEST-", "SECK-", "PUBK_TEST-", "PUBK-"])?;
    parts.part(CharacterSet::Url, 12, 40)?.drawn(rest)
}

fn mapbox(rest: &[u8]) -> Option<usize> {
    Parts::new(rest).part(CharacterSet::Url, 40, 200)?.text(".")?.part(CharacterSet::Url, 22, 22)?.drawn(rest)
}

/// Six capitals or digits, then five or six parts of them.
fn onepassword(rest: &[u8]) -> Option<usize> {
    let first = || Parts::new(rest).part(CharacterSet::Upper, 6, 6)?.text("-");
    let joined = || first()?.part(CharacterSet::Upper, 11, 11);
    let apart = || first()?.part(CharacterSet::Upper, 6, 6)?.text("-")?.part(CharacterSet::Upper, 5, 5);
    let mut parts = joined().or_else(apart)?;
    for _ in 0..3 {
        parts = parts.text("-")?.part(CharacterSet::Upper, 5, 5)?;
    }
    parts.drawn(rest)
}

fn authress(rest: &[u8]) -> Option<usize> {
    let parts =
        Parts::new(rest).part(CharacterSet::Word, 5, 30)?.text(".")?.part(CharacterSet::Word, 4, 6)?;
    let parts = parts.text(".acc")?.any(&["_", "-"])?.part(CharacterSet::Url, 10, 32)?;
    parts.text(".")?.part(CharacterSet::Base64, 30, 120)?.drawn(rest)
}

fn yandex(rest: &[u8]) -> Option<usize> {
    Parts::new(rest)
        .part(CharacterSet::Base64, 10, 1000)?
        .text(".")?
        .part(CharacterSet::Base64, 86, 88)?
        .drawn(rest)
}

fn yandex_static(rest: &[u8]) -> Option<usize> {
    let parts = Parts::new(rest).part(CharacterSet::Url, 38, 38)?;
    is_mixed(&rest[..38]).then_some(())?;
    parts.drawn(rest)
}

/// `s.` is also ordinary field syntax, so all kinds of characters are required.
fn vault_service(rest: &[u8]) -> Option<usize> {
    let parts = Parts::new(rest).part(CharacterSet::Word, 24, 24)?;
    // A name may end in a number.
    (is_mixed(&rest[..24]) && rest[..22].iter().any(u8::is_ascii_digit)).then_some(())?;
    parts.drawn(rest)
}

fn is_mixed(body: &[u8]) -> bool {
    let has = |fits: fn(&u8) -> bool| body.iter().any(fits);
    has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)
}

/// `xoxb-`, `xoxp-` and their relatives: numbers and a secret, joined by `-`.
fn slack(rest: &[u8]) -> Option<usize> {
    let (kind, rest) = rest.split_first()?;
    let body = rest.strip_prefix(b"-").or(rest.strip_prefix(b"e-"));
    let body = body.or(rest.strip_prefix(b".xoxp-")).or(rest.strip_prefix(b".xoxb-"));
    let body = body.or(rest.strip_prefix(b"e.xoxp-"))?;
    let length = CharacterSet::Dotted.length(body);
    let fits = match kind.to_ascii_lowercase() {
        // These prefixes also occur in prose.
        b'o' | b's' => body[..length]
            .split(|byte| *byte == b'-')
            .take(3)
            .all(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit)),
        b'a' | b'b' | b'c' | b'e' | b'p' | b'r' => length >= 8 && is_random(&body[..length]),
        _ => false,
    };
    (fits && length >= 8 && body[..length].iter().any(u8::is_ascii_digit))
        .then(|| 1 + rest.len() - body.len() + length)
}

fn slack_app(rest: &[u8]) -> Option<usize> {
    let parts = Parts::new(rest)
        .part(CharacterSet::Digit, 1, 1)?
        .text("-")?
        .part(CharacterSet::Word, 1, 64)?
        .text("-")?;
    Some(parts.part(CharacterSet::Digit, 1, 64)?.text("-")?.part(CharacterSet::Word, 1, 128)?.taken)
}

fn slack_webhook(rest: &[u8]) -> Option<usize> {
    let parts = Parts::new(rest).any(&["services/", "workflows/", "triggers/"])?;
    parts.part(CharacterSet::Base64, 30, 100)?.drawn(rest)
}

fn teams(rest: &[u8]) -> Option<usize> {
    let parts = Parts::new(rest).uuid()?.text("@")?.uuid()?.text("/IncomingWebhook/")?;
    let parts = parts.part(CharacterSet::Word, 32, 32)?.text("/")?.uuid()?;
    Some(parts.taken + CharacterSet::Url.length(parts.rest.strip_prefix(b"/").unwrap_or_default()))
}

fn discord_webhook(rest: &[u8]) -> Option<usize> {
    Parts::new(rest)
        .part(CharacterSet::Digit, 17, 20)?
        .text("/")?
        .part(CharacterSet::Url, 60, 80)?
        .drawn(rest)
}

/// Three parts, the first two JSON objects: `ey` is `{` in Base64. The signature may be empty.
fn jwt(rest: &[u8]) -> Option<usize> {
    let parts = Parts::new(rest)
        .part(CharacterSet::Url, 13, LONG)?
        .text(".ey")?
        .part(CharacterSet::Base64, 13, LONG)?
        .text(".")?;
    let signature = CharacterSet::Base64.length(parts.rest);
    // Without a signature, the content must look random.
    let fits = signature >= 10 || (signature == 0 && is_random(&rest[..parts.taken]));
    fits.then_some(parts.taken + signature)
}

/// The names with which the header of a token may begin.
const JOSE_NAMES: &[&str] = &[
    "alg", "apu", "apv", "aud", "b64", "crit", "cty", "epk", "enc", "jku", "jwk", "iss", "iv", "kid",
    "key_ops", "kty", "nonce", "p2c", "p2s", "ppt", "sub", "svt", "tag", "typ", "url", "use", "ver", "x",
    "zip",
];

/// A JWT encoded once more: `ZXlK` is `eyJ`.
fn jwt_in_base64(rest: &[u8]) -> Option<usize> {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD_NO_PAD;
    let length = CharacterSet::Base64.length(rest);
    if length < 44 || !is_random(&rest[..length]) {
        return None;
    }
    let inner = STANDARD_NO_PAD.decode([b"ZXlK", &rest[..8]].concat()).ok()?;
    // The last character also depends on what follows.
    let head = STANDARD_NO_PAD.decode([&inner[..7], b"A"].concat()).ok()?;
    let begins = |name: &str| head[2..5].starts_with(&name.as_bytes()[..name.len().min(3)]);
    JOSE_NAMES.iter().any(|name| begins(name)).then_some(length)
}
