//! A control plane with all its parts: the store, the core, the sync sockets, the gRPC servers, and a data plane in the same
//! process if the settings have one.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use ejfat::{lb::Rules, listen::Listen};
use ejfat_control::config::{Config, LoadBalancerConfig};
use ejfat_lb::{ForwardError, Forwarder, ForwarderConfig, SharedDataPlane};
use naa_grpc::{GrpcServer, GrpcServerConfig, ServeError};
use naa_store::SqliteStore;

use crate::{
    api::{self, Public},
    backups::{BackupError, Backups},
    certificate::Watch,
    core::{Core, Parts, StartError},
    planes::PlaneAddress,
    settings::{Settings, SettingsError},
    syncs::{SyncAddress, SyncError, Syncs},
    token::{self, TokenFileError},
};

/// The most connections of each gRPC server at a time, unless the settings give another limit.
const CONNECTIONS: usize = 1024;
/// The most requests that are in progress on one connection at a time.
const STREAMS: u32 = 64;
/// Threads of each gRPC server.
const THREADS: usize = 2;
/// The receive buffer of each port of the data plane, in bytes.
const BUFFER: usize = 8 << 20;

/// Why a control plane cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration is not valid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The file of the admin token cannot be used.
    #[error(transparent)]
    Token(#[from] TokenFileError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] naa_store::Error),
    /// The control plane itself cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A sync socket cannot be bound.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// The data plane in this process cannot start.
    #[error("the data plane of this process: {0}")]
    Forward(#[from] ForwardError),
    /// The gRPC server or the HTTP server cannot start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A folder for the control plane's files cannot be made.
    #[error("cannot make the folder {}: {source}; make it, or give another one", .path.display())]
    Folder {
        /// The path of the folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A control plane that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Daemon {
    core: Arc<Core>,
    servers: Vec<GrpcServer>,
    syncs: Syncs,
    local: Option<(Arc<SharedDataPlane>, Forwarder)>,
    public: Public,
    token_file: PathBuf,
    store_file: PathBuf,
    store: Arc<SqliteStore>,
    backups: Backups,
    certificate: Option<Arc<Mutex<Watch>>>,
}

impl Daemon {
    /// Starts all parts. `state` is the folder of the store and of the admin token's file, unless the settings name these files.
    /// `seed` is the seed of the data plane's hash tables.
    ///
    /// # Errors
    /// If one of the parts cannot start.
    pub fn start(settings: &Settings, state: &Path, seed: u64) -> Result<Self, DaemonError> {
        // Nothing is made, and no term is claimed, if the configuration is wrong.
        settings.check()?;
        let (config, options) = (settings.config(), settings.options()?);
        let folder = |path: &Path| {
            let path = path.parent().unwrap_or(path).to_owned();
            std::fs::create_dir_all(&path).map_err(|source| DaemonError::Folder { path, source })
        };
        let token_file = settings.admin_token_file.clone().unwrap_or_else(|| state.join("admin-token"));
        let store_file = settings.store.clone().unwrap_or_else(|| state.join("control.db"));
        folder(&token_file)?;
        folder(&store_file)?;
        let is_new = !store_file.exists();
        if is_new {
            warn_of_lost_store(&store_file, &token_file, settings.backup.as_deref());
        }
        let root = token::read_or_make(&token_file)?;
        let (host, port) = settings.public()?;
        let plane = Arc::new(SharedDataPlane::new(Rules::default(), seed));
        let planes = settings.planes(|| PlaneAddress::Local(plane.clone()))?;
        let store = Arc::new(SqliteStore::open(&store_file, &naa_store::SqliteConfig::default())?);
        let forwarder = if settings.has_local_plane() {
            let forwarder = ForwarderConfig { listen: data_ports(&config), buffer: BUFFER };
            Some(Forwarder::start(&forwarder, &plane)?)
        } else {
            None
        };
        let audit = settings.audit.clone();
        let parts = Parts { config: config.clone(), options, root, store: store.clone(), planes, audit };
        let core = Core::start(parts)?;
        // The core's own thread keeps the core alive, so it must be stopped when another part cannot start.
        let syncs = Syncs::start(&core, &sync_addresses(&config)).inspect_err(|_| core.stop())?;
        let (found, mut servers) = (Arc::new(OnceLock::new()), Vec::<GrpcServer>::new());
        // All servers share one service, so that its limits hold for all of them together.
        let service = api::service(&core, found.clone());
        for at in settings.listen() {
            let grpc = GrpcServerConfig {
                connections: settings.limits.connections.unwrap_or(CONNECTIONS),
                streams: STREAMS,
                threads: THREADS,
                permits: None,
                tls: settings.server_tls(),
            };
            let server = naa_grpc::serve(grpc, at, service.clone());
            servers.push(server.inspect_err(|_| core.stop())?);
        }
        let bound = servers.first().filter(|_| settings.public.is_none());
        let port = bound.map_or(port, |server| server.address().port());
        let public = found.get_or_init(|| Public { tls: settings.tls.is_some(), host, port }).clone();
        let local = forwarder.map(|forwarder| (plane, forwarder));
        let watch = |tls| Arc::new(Mutex::new(Watch::new(tls, public.host.clone())));
        let certificate = settings.server_tls().map(watch);
        let backups = Backups::new(is_new);
        Ok(Self { core, servers, syncs, local, public, token_file, store_file, store, backups, certificate })
    }

    /// Returns the running control plane.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The addresses at which gRPC is served.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(GrpcServer::address).collect()
    }

    /// Returns the sync sockets.
    pub fn syncs(&self) -> &Syncs {
        &self.syncs
    }

    /// The data plane of this process, with its sockets.
    pub fn local(&self) -> Option<(&Arc<SharedDataPlane>, &Forwarder)> {
        self.local.as_ref().map(|(plane, forwarder)| (plane, forwarder))
    }

    /// The address at which clients find the control plane.
    pub fn public(&self) -> &Public {
        &self.public
    }

    /// The file with the admin token.
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// The file of the store.
    pub fn store(&self) -> &Path {
        &self.store_file
    }

    /// Writes a backup of the store to a file. The file appears when it is complete. The backup before it is kept in FILE.1, and one
    /// that is there at the start and of another store in FILE.kept.
    ///
    /// # Errors
    /// If the store cannot be read, the file cannot be written, or it and FILE.kept are both of another store.
    pub fn backup(&self, to: &Path) -> Result<(), BackupError> {
        self.backups.write(&self.store, to)
    }

    /// Looks at the certificate once a minute, and warns of one that clients refuse or soon will. It is to be called often.
    pub fn look_at_certificate(&self) {
        if let Some(watch) = &self.certificate {
            watch.lock().unwrap_or_else(PoisonError::into_inner).look();
        }
    }

    /// A function that returns when the certificate ends, in UNIX time, or `None` if there is none.
    pub fn certificate_ends(&self) -> impl Fn() -> Option<u64> + Send + Sync + use<> {
        let certificate = self.certificate.clone();
        move || certificate.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).ends
    }

    /// Opens the audit log's file again by its name, because log rotation has renamed it. Certificates need no such call: their files
    /// are read again within a second after they changed.
    pub fn reopen(&self) {
        self.core.reopen_audit();
    }

    /// Returns a message if one of the parts has ended by itself.
    pub fn ended(&self) -> Option<String> {
        let forwarder = self.local.as_ref().and_then(|(_, forwarder)| forwarder.ended());
        let own = forwarder.or_else(|| self.core.ended()).or_else(|| self.syncs.ended());
        own.or_else(|| self.servers.iter().find_map(GrpcServer::ended))
    }

    /// Refuses new requests, stores the changes that wait for the store, and ends. A caller whose reply is not sent yet loses its
    /// connection.
    pub fn stop(self) {
        self.core.stop();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.core.stop();
    }
}

/// Says that the store is missing, if a former control plane has left other files.
fn warn_of_lost_store(store: &Path, token_file: &Path, backup: Option<&Path>) {
    let left = [Some(token_file), backup].into_iter().flatten().find(|file| file.exists());
    if let Some(left) = left {
        let from = backup.map_or("BACKUP".into(), Path::to_string_lossy);
        tracing::warn!(
            "there is no store {}, but there is {}: this control plane begins without reservations and tokens; if the store was lost, \
             stop this control plane and restore a backup: naa lb restore {from} --store {}",
            store.display(),
            left.display(),
            store.display()
        );
    }
}

/// The addresses and ports on which segments are received, as one list for each address.
fn data_ports(config: &Config) -> Vec<Vec<Listen>> {
    let of = |of: &LoadBalancerConfig| {
        let (first, last) = (*of.data_ports.start(), *of.data_ports.end());
        of.data_addresses().map(move |ip| {
            let port = Listen::Port(SocketAddr::new(ip, first));
            vec![if first == last { port } else { Listen::Range { ip, first, last } }]
        })
    };
    config.load_balancers.iter().flat_map(of).collect()
}

/// The addresses and ports on which sync datagrams are received.
fn sync_addresses(config: &Config) -> Vec<SyncAddress> {
    let of = |(lb, of): (_, &LoadBalancerConfig)| of.sync_addresses().map(move |at| SyncAddress { lb, at });
    config.load_balancers().flat_map(of).collect()
}
