//! Supervision of services: restart with backoff and jitter, state for readiness, drain at shutdown.

use futures::FutureExt;
use parking_lot::{Mutex, MutexGuard};
use portcullis_core::{Health, Service, ServiceCtx, jittered};
use std::collections::HashSet;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// The delay before the first restart; it doubles with each further one.
const RESTART_FIRST: Duration = Duration::from_millis(500);
const RESTART_MAX: Duration = Duration::from_secs(60);
/// A service that ran for this long starts over with the first delay.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// What a supervised service is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceState {
    Running,
    /// It failed for this reason, and is started again after a delay.
    Restarting(String),
    /// Its work is done.
    Ended,
}

/// The state of one service, for `/readyz` and `doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceStatus {
    pub name: &'static str,
    pub state: ServiceState,
    /// How often it was started again.
    pub restarts: u64,
    pub health: Health,
}

impl ServiceStatus {
    /// Returns why the service does not do its work, if so.
    pub fn problem(&self) -> Option<String> {
        match (&self.state, &self.health) {
            (ServiceState::Restarting(why), _) => Some(format!("restarting after a failure: {why}")),
            (_, Health::Failed(why)) => Some(why.clone()),
            (ServiceState::Running | ServiceState::Ended, Health::Ok) => None,
        }
    }
}

/// The services of one hub.
pub(crate) struct Services {
    supervised: Mutex<Vec<Arc<SupervisedService>>>,
    running: TaskTracker,
    changed: watch::Sender<()>,
}

struct SupervisedService {
    service: Arc<dyn Service>,
    state: Mutex<(ServiceState, u64)>,
}

impl Default for Services {
    fn default() -> Services {
        let (supervised, running) = (Mutex::default(), TaskTracker::new());
        Services { supervised, running, changed: watch::Sender::new(()) }
    }
}

/// Two services have the same name, so their states could not be told apart. None was started.
#[derive(Debug)]
pub struct DuplicateService(pub &'static str);

impl fmt::Display for DuplicateService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "two services are called `{}`", self.0)
    }
}

impl std::error::Error for DuplicateService {}

impl Services {
    /// Starts services. They run until `ctx.shutdown`.
    pub(crate) fn start(
        &self,
        services: Vec<Arc<dyn Service>>,
        ctx: &ServiceCtx,
    ) -> Result<(), DuplicateService> {
        let mut all = self.lock();
        let mut names: HashSet<&'static str> = all.iter().map(|started| started.service.name()).collect();
        if let Some(again) = services.iter().find(|service| !names.insert(service.name())) {
            return Err(DuplicateService(again.name()));
        }
        for service in services {
            let state = Mutex::new((ServiceState::Running, 0));
            let supervised = Arc::new(SupervisedService { service, state });
            all.push(supervised.clone());
            self.running.spawn(supervise(supervised, ctx.clone(), self.changed.clone()));
        }
        Ok(())
    }

    pub(crate) fn statuses(&self) -> Vec<ServiceStatus> {
        let status = |supervised: &Arc<SupervisedService>| {
            let (state, restarts) = supervised.state();
            let service = &supervised.service;
            ServiceStatus { name: service.name(), state, restarts, health: service.health() }
        };
        self.lock().iter().map(status).collect()
    }

    /// Returns a receiver that is notified when a service fails or runs again.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Waits until all services have ended, and names those that have not within `grace`.
    pub(crate) async fn drained(&self, grace: Duration) -> Vec<&'static str> {
        self.running.close();
        if tokio::time::timeout(grace, self.running.wait()).await.is_ok() {
            return Vec::new();
        }
        let running = |status: &ServiceStatus| status.state != ServiceState::Ended;
        self.statuses().iter().filter(|status| running(status)).map(|status| status.name).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<SupervisedService>>> {
        self.supervised.lock()
    }
}

impl SupervisedService {
    fn state(&self) -> (ServiceState, u64) {
        self.state.lock().clone()
    }

    fn set(&self, state: ServiceState, restarts: u64) {
        *self.state.lock() = (state, restarts);
    }
}

/// Runs one service until it is done or the hub shuts down.
async fn supervise(supervised: Arc<SupervisedService>, ctx: ServiceCtx, changed: watch::Sender<()>) {
    let name = supervised.service.name();
    let (mut delay, mut restarts) = (RESTART_FIRST, 0);
    loop {
        supervised.set(ServiceState::Running, restarts);
        changed.send_replace(());
        let started = Instant::now();
        // A panic costs this service only.
        let (service, own) = (supervised.service.clone(), ctx.clone());
        let run = AssertUnwindSafe(async move { service.run(own).await }).catch_unwind();
        let why = match run.await {
            Ok(Ok(())) if supervised.service.is_finite() => break,
            Ok(Ok(())) => "it ended before the hub did".to_owned(),
            Ok(Err(error)) => error.to_string(),
            // The panic hook has logged where.
            Err(_) => "it panicked; see the hub's log".to_owned(),
        };
        if ctx.shutdown.is_cancelled() {
            break;
        }
        if started.elapsed() >= STABLE_AFTER {
            delay = RESTART_FIRST;
        }
        restarts += 1;
        let pause = jittered(delay);
        tracing::error!(
            target: "service", service = name, error = why, restarts, retry_ms = pause.as_millis() as u64,
            "Service failed; starting it again."
        );
        supervised.set(ServiceState::Restarting(why), restarts);
        changed.send_replace(());
        tokio::select! {
            () = ctx.shutdown.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
        delay = (delay * 2).min(RESTART_MAX);
    }
    supervised.set(ServiceState::Ended, restarts);
    changed.send_replace(());
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::{BoxFuture, GateHandle, ServiceError, SystemClock};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio_util::sync::CancellationToken;

    /// Fails in its first runs, each in another way, and then runs until shutdown.
    #[derive(Default)]
    struct Unsteady {
        runs: AtomicUsize,
        gave_up_leases: AtomicUsize,
    }

    impl Service for Unsteady {
        fn name(&self) -> &'static str {
            "unsteady"
        }

        fn run(self: Arc<Self>, ctx: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
            Box::pin(async move {
                match self.runs.fetch_add(1, Ordering::Relaxed) {
                    0 => Err("the network is away".into()),
                    1 => panic!("a mistake"),
                    _ => {
                        ctx.shutdown.cancelled().await;
                        self.gave_up_leases.fetch_add(1, Ordering::Relaxed);
                        Ok(())
                    }
                }
            })
        }

        fn health(&self) -> Health {
            match self.runs.load(Ordering::Relaxed) {
                0..=3 => Health::Ok,
                _ => Health::Failed("too often".to_owned()),
            }
        }
    }

    struct Deaf;

    impl Service for Deaf {
        fn name(&self) -> &'static str {
            "deaf"
        }

        fn run(self: Arc<Self>, _: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
            Box::pin(std::future::pending())
        }
    }

    fn ctx() -> ServiceCtx {
        ServiceCtx {
            shutdown: CancellationToken::new(),
            calls_over: CancellationToken::new(),
            clock: Arc::new(SystemClock),
            gate: GateHandle::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_fails_or_panics_is_started_again_and_says_why() {
        let (services, ctx, unsteady) = (Services::default(), ctx(), Arc::new(Unsteady::default()));
        let mut changed = services.subscribe();
        services.start(vec![unsteady.clone()], &ctx).unwrap();
        let mut seen = Vec::new();
        while unsteady.runs.load(Ordering::Relaxed) < 3 {
            changed.changed().await.unwrap();
            seen.extend(services.statuses().pop().and_then(|status| status.problem()));
        }
        seen.dedup();
        assert_eq!(
            seen,
            [
                "restarting after a failure: the network is away",
                "restarting after a failure: it panicked; see the hub's log"
            ]
        );
        let status = services.statuses().pop().unwrap();
        assert_eq!((status.state, status.restarts), (ServiceState::Running, 2));
        ctx.shutdown.cancel();
        assert!(services.drained(Duration::from_secs(1)).await.is_empty());
        assert_eq!(services.statuses()[0].state, ServiceState::Ended);
        assert_eq!(unsteady.gave_up_leases.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_delay_between_restarts_grows_to_a_bound() {
        struct Broken(Mutex<Vec<Instant>>);
        impl Service for Broken {
            fn name(&self) -> &'static str {
                "broken"
            }
            fn run(self: Arc<Self>, _: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
                self.0.lock().push(Instant::now());
                Box::pin(std::future::ready(Err("always".into())))
            }
        }
        let (services, ctx, broken) = (Services::default(), ctx(), Arc::new(Broken(Mutex::default())));
        services.start(vec![broken.clone()], &ctx).unwrap();
        tokio::time::sleep(Duration::from_secs(600)).await;
        ctx.shutdown.cancel();
        assert!(services.drained(Duration::from_secs(1)).await.is_empty());
        let started = broken.0.lock().clone();
        let pauses: Vec<Duration> = started.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses[0] < RESTART_FIRST * 2 && pauses.iter().all(|pause| *pause <= RESTART_MAX * 5 / 4));
        assert!(*pauses.last().unwrap() >= RESTART_MAX / 2, "{pauses:?}");
        assert!((10..25).contains(&started.len()), "{}", started.len());
    }

    /// Returns at once.
    struct Brief {
        name: &'static str,
        finite: bool,
    }

    impl Service for Brief {
        fn name(&self) -> &'static str {
            self.name
        }

        fn run(self: Arc<Self>, _: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn is_finite(&self) -> bool {
            self.finite
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_ends_early_is_a_problem_unless_it_is_finite() {
        for (finite, expected) in
            [(true, None), (false, Some("restarting after a failure: it ended before the hub did"))]
        {
            let (services, ctx) = (Services::default(), ctx());
            let mut changed = services.subscribe();
            services.start(vec![Arc::new(Brief { name: "brief", finite })], &ctx).unwrap();
            while services.statuses()[0].state == ServiceState::Running {
                changed.changed().await.unwrap();
            }
            assert_eq!(services.statuses()[0].problem().as_deref(), expected);
            ctx.shutdown.cancel();
            assert!(services.drained(Duration::from_secs(1)).await.is_empty());
            assert_eq!(services.statuses()[0].problem(), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_given_once_and_otherwise_nothing_starts() {
        let (services, ctx) = (Services::default(), ctx());
        let brief = |name| Arc::new(Brief { name, finite: true }) as Arc<dyn Service>;
        let refused = services.start(vec![brief("a"), brief("b"), brief("a")], &ctx).unwrap_err();
        assert_eq!(refused.to_string(), "two services are called `a`");
        assert!(services.statuses().is_empty());
        services.start(vec![brief("a")], &ctx).unwrap();
        assert!(services.start(vec![brief("b"), brief("a")], &ctx).is_err());
        assert_eq!(services.statuses().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_ignores_the_shutdown_is_named() {
        let (services, ctx) = (Services::default(), ctx());
        let unsteady = Unsteady { runs: 2.into(), ..Unsteady::default() };
        services.start(vec![Arc::new(Deaf), Arc::new(unsteady)], &ctx).unwrap();
        tokio::task::yield_now().await;
        ctx.shutdown.cancel();
        assert_eq!(services.drained(Duration::from_secs(5)).await, ["deaf"]);
    }
}
