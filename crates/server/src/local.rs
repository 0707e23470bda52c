//! The local socket: how a second process on the same home finds the hub that runs already.

use crate::hub::Hub;
use crate::line;
use std::fs::Permissions;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::task::TaskTracker;

/// The socket's name in the home.
const SOCKET: &str = "hub.sock";
/// The file whose lock says which process is the hub.
const LOCK: &str = "hub.lock";
/// The longest path that the kernel takes for a socket.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Shows that this process is the hub of its home. Let go when dropped, or by the kernel when the process dies.
#[derive(Debug)]
pub struct Claim {
    _lock: std::fs::File,
    dir: PathBuf,
}

/// Tries to become the hub of `dir`. `None` means that another process is.
pub fn claim(dir: &Path) -> io::Result<Option<Claim>> {
    let lock = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(dir.join(LOCK))?;
    lock.set_permissions(Permissions::from_mode(0o600))?;
    match rustix::fs::flock(lock.as_fd(), rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Claim { _lock: lock, dir: dir.to_owned() })),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns a path to the socket that the kernel takes, and what must live as long as the path is used.
fn socket_path(dir: &Path) -> io::Result<(PathBuf, Option<std::fs::File>)> {
    let path = dir.join(SOCKET);
    if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return Ok((path, None));
    }
    // A deep home has too long a name; the folder as an open file has a short one.
    use std::os::fd::AsRawFd;
    let folder = std::fs::File::open(dir)?;
    let short = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
    Ok((short.into(), Some(folder)))
}

impl Claim {
    /// Opens the socket, for this user alone. What a dead hub left behind is replaced.
    pub fn listen(&self) -> io::Result<UnixListener> {
        let (path, _folder) = socket_path(&self.dir)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The folder is 0700, so there is no moment in which someone else could connect.
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(listener)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Left behind it would do no harm: the next hub replaces it.
        let _ = std::fs::remove_file(self.dir.join(SOCKET));
    }
}

/// Connects to the hub of `dir`.
pub async fn connect(dir: &Path) -> io::Result<UnixStream> {
    let (path, _folder) = socket_path(dir)?;
    UnixStream::connect(path).await
}

/// Serves the socket until the hub closes.
pub async fn serve(hub: Arc<Hub>, listener: UnixListener) {
    let connections = TaskTracker::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(target: "mcp", %error, "A local connection could not be accepted.");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = hub.closing.cancelled() => break,
        };
        let hub = hub.clone();
        connections.spawn(async move {
            let (from, to) = stream.into_split();
            if let Err(error) = line::serve(hub, "socket", from, to).await {
                tracing::debug!(target: "mcp", %error, "a local connection ended");
            }
        });
    }
    connections.close();
    connections.wait().await;
}

/// How a bridge ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BridgeEnd {
    /// The client closed its side.
    ClientLeft,
    /// The hub went away.
    HubLeft,
}

/// Copies bytes both ways until one side ends.
pub async fn bridge<R, W>(hub: UnixStream, mut from: R, mut to: W) -> io::Result<BridgeEnd>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (mut hub_reads, mut hub_writes) = hub.into_split();
    let up = async {
        tokio::io::copy(&mut from, &mut hub_writes).await?;
        hub_writes.shutdown().await
    };
    let down = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = tokio::io::AsyncReadExt::read(&mut hub_reads, &mut buffer).await?;
            if count == 0 {
                return Ok::<(), io::Error>(());
            }
            to.write_all(&buffer[..count]).await?;
            to.flush().await?;
        }
    };
    tokio::pin!(up, down);
    tokio::select! {
        up = &mut up => {
            // The client is done; what the hub still has to say is passed on.
            match up {
                Ok(()) => down.await.map(|()| BridgeEnd::ClientLeft),
                Err(_) => Ok(BridgeEnd::HubLeft),
            }
        }
        down = &mut down => down.map(|()| BridgeEnd::HubLeft),
    }
}
