//! All attacks on one server: what each costs is not to add up.

use super::{Attack, Victim, deep_nesting, duplicate_keys, giant_line, not_json, wrong_shapes, wrong_types};

const ROUNDS: usize = 3;

fn attacks() -> Vec<Attack> {
    [
        not_json::attacks(),
        wrong_shapes::attacks(),
        wrong_types::attacks(),
        duplicate_keys::attacks(),
        deep_nesting::attacks(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

async fn suffer_all(victim: &mut Victim) {
    let attacks = attacks();
    assert!(attacks.len() > 80, "{}", attacks.len());
    for attack in &attacks {
        victim.suffer(attack).await;
    }
}

#[tokio::test]
async fn on_stdio_costs_little() {
    let mut victim = Victim::on_stdio().await;
    for _ in 0..ROUNDS {
        suffer_all(&mut victim).await;
    }
    giant_line::send(&mut victim).await;
    suffer_all(&mut victim).await;
    victim.assert_small("the whole run on stdio");
}

#[tokio::test]
async fn over_http_costs_little() {
    let mut victim = Victim::over_http().await;
    for _ in 0..ROUNDS {
        suffer_all(&mut victim).await;
    }
    victim.assert_small("the whole run over HTTP");
}
