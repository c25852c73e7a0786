//! How is a real server started, given work, and its stop judged?
//!
//! nginx, PostgreSQL and Redis as Debian packages them, each in the foreground with
//! all its files in a directory of its own and no port but a unix socket there. To
//! the tests each is a store: something is being stored when the stop comes, and
//! whether it was kept is seen at the next start, on the same data. The clients are
//! here as well, so that no process but the server's own is part of a run.
//!
//! May use: `common`, `kit`.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{NOBODY, Run, Running, Signal, open_to_all, skip};
use crate::kit::{find, have};

/// Who stops the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// corral is cancelled and tells the whole tree; in a group, where it may have one.
    Tree,
    /// corral is cancelled and tells the command alone; in no group.
    Command,
    /// corral's time limit; the command alone is told.
    Wall,
    /// docker-init passes the signal on.
    DockerInit,
}

/// A way to stop a server.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    pub by: By,
    pub signal: Signal,
}

/// Where a server has its files: `run` is for what it must remove (its socket, its
/// pid file), `data` for what it must keep.
pub struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        open_to_all(place.path());
        for name in ["run", "data"] {
            fs::create_dir(place.file(name)).unwrap();
            open_to_all(&place.file(name));
        }
        place
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn word(&self, name: &str) -> String {
        self.file(name).to_str().unwrap().to_owned()
    }
}

/// A server and its client.
pub trait Server {
    fn place(&self) -> &Place;

    fn command(&self) -> Vec<String>;

    /// Whom it runs as; `None`: as whoever runs the tests.
    fn uid(&self) -> Option<u32>;

    /// How many processes it has at least, while there is work.
    fn processes(&self) -> u64;

    /// Whether this is stored. An error: it does not answer (yet).
    fn stored(&self, name: &str) -> io::Result<bool>;

    /// Begins to store this, until the server has the work in hand.
    fn begin(&mut self, name: &str) -> io::Result<()>;

    /// What its log says of a graceful stop and of no other; the first of it when
    /// the stop begins.
    fn words(&self, stop: Stop) -> &'static [&'static str];

    /// Whether such a stop lets the work in hand be finished.
    fn keeps(&self, stop: Stop) -> bool;

    /// Ends the work, while the server stops: finishes it, or sees it cut off.
    fn finish(&mut self, run: &mut Running, keeps: bool);

    /// Whether the data say that the stop was graceful.
    fn settled(&self, name: &str) -> bool;
}

/// An unprivileged user where this is root.
fn nobody() -> Option<u32> {
    rustix::process::geteuid().is_root().then_some(NOBODY)
}

fn connect(socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    // A server that says nothing more is a failed test.
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(stream)
}

/// Two workers that PUT files. Its master stays root where the tests are root's, as
/// under a service manager; its workers are another user's.
pub struct Nginx {
    place: Place,
    upload: Option<UnixStream>,
}

/// What is uploaded: one part before the stop, the other one during it.
const PARTS: [&str; 2] = ["sent before the stop, ", "and during it\n"];

impl Nginx {
    pub fn new() -> Option<Self> {
        if !have(&["nginx"]) {
            return None;
        }
        let place = Place::new();
        let temps = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path temp_{what};"))
            .concat();
        let user = nobody().map_or("", |_| "user nobody nogroup;");
        let config = format!(
            "{user} daemon off; worker_processes 2; pid run/pid; error_log stderr notice;
            events {{}}
            http {{ access_log off; {temps}
                server {{ listen unix:{}; root data; dav_methods PUT; }} }}",
            place.word("run/socket")
        );
        fs::write(place.file("config"), config).unwrap();
        Some(Self { place, upload: None })
    }

    fn connect(&self) -> io::Result<UnixStream> {
        connect(&self.place.file("run/socket"))
    }
}

impl Server for Nginx {
    fn place(&self) -> &Place {
        &self.place
    }

    fn command(&self) -> Vec<String> {
        let (prefix, config) = (self.place.word(""), self.place.word("config"));
        ["nginx", "-e", "stderr", "-p", &prefix, "-c", &config].map(str::to_owned).into()
    }

    fn uid(&self) -> Option<u32> {
        None
    }

    fn processes(&self) -> u64 {
        3
    }

    fn stored(&self, name: &str) -> io::Result<bool> {
        let mut stream = self.connect()?;
        write!(stream, "GET /{name} HTTP/1.0\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        match reply.split(' ').nth(1) {
            Some("200") => Ok(reply.ends_with(&PARTS.concat())),
            Some("404") => Ok(false),
            _ => Err(io::Error::other(reply)),
        }
    }

    fn begin(&mut self, name: &str) -> io::Result<()> {
        let mut stream = self.connect()?;
        let length = PARTS.concat().len();
        write!(
            stream,
            "PUT /{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Length: {length}\r\nExpect: 100-continue\r\n\r\n{}",
            PARTS[0]
        )?;
        let wanted = b"HTTP/1.1 100 Continue\r\n\r\n";
        let mut reply = [0; 25];
        stream.read_exact(&mut reply)?;
        assert_eq!(reply, *wanted, "{}", reply.escape_ascii());
        self.upload = Some(stream);
        Ok(())
    }

    fn words(&self, _: Stop) -> &'static [&'static str] {
        &["gracefully shutting down"]
    }

    fn keeps(&self, _: Stop) -> bool {
        true
    }

    fn finish(&mut self, run: &mut Running, _: bool) {
        run.wait_until("nobody new is let in", |_| self.connect().is_err());
        let mut upload = self.upload.take().unwrap();
        upload.write_all(PARTS[1].as_bytes()).unwrap();
        let mut reply = String::new();
        upload.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 201 Created\r\n"), "{reply}");
    }

    fn settled(&self, name: &str) -> bool {
        let file = self.place.file("data").join(name);
        fs::read_to_string(file).is_ok_and(|text| text == PARTS.concat())
    }
}

/// One table. The work is an open transaction.
pub struct Postgres {
    place: Place,
    /// Where its programs are: not in PATH, on Debian.
    programs: PathBuf,
    session: Option<Session>,
}

/// A connection, in the protocol's simplest form.
struct Session(UnixStream);

impl Session {
    fn open(socket: &Path) -> io::Result<Self> {
        let mut session = Self(connect(socket)?);
        let words = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
        session.0.write_all(&(u32::try_from(words.len()).unwrap() + 4).to_be_bytes())?;
        session.0.write_all(words)?;
        session.replies()?;
        Ok(session)
    }

    /// The value in the first row's last column, or what the server says against it.
    fn query(&mut self, text: &str) -> io::Result<String> {
        self.0.write_all(b"Q")?;
        self.0.write_all(&(u32::try_from(text.len()).unwrap() + 5).to_be_bytes())?;
        self.0.write_all(text.as_bytes())?;
        self.0.write_all(b"\0")?;
        self.replies()
    }

    /// Reads until it is our turn, or up to a fatal error.
    fn replies(&mut self) -> io::Result<String> {
        let mut row = String::new();
        let mut error = None;
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head).map_err(|e| error.take().unwrap_or(e))?;
            let length = u32::from_be_bytes(head[1..].try_into().unwrap());
            let mut body = vec![0; length as usize - 4];
            self.0.read_exact(&mut body)?;
            let text = || String::from_utf8_lossy(&body).into_owned();
            match head[0] {
                b'Z' => return error.map_or(Ok(row), Err),
                // One column: their number and its length stand before it.
                b'D' => row = text().split_off(6),
                b'E' => error = Some(io::Error::other(text())),
                _ => {}
            }
        }
    }
}

impl Postgres {
    pub fn new() -> Option<Self> {
        let packaged = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let packaged = packaged.map(|version| version.path().join("bin"));
        let found = find("postgres").and_then(|path| Some(path.parent()?.to_owned()));
        let Some(programs) = packaged.chain(found).find(|path| path.join("initdb").exists()) else {
            skip("needs postgres");
            return None;
        };
        let place = Place::new();
        let words = ["-N", "-A", "trust", "-U", "postgres", "--no-locale", "--wal-segsize=1", "-D"];
        let initdb = Run::argv([programs.join("initdb")]).args(words).args([place.file("data/db")]);
        let outcome = match nobody() {
            Some(uid) => initdb.uid(uid).run(),
            None => initdb.run(),
        };
        outcome.assert_status(0);
        Some(Self { place, programs, session: None })
    }

    fn open(&self) -> io::Result<Session> {
        Session::open(&self.place.file("run/.s.PGSQL.5432"))
    }
}

impl Server for Postgres {
    fn place(&self) -> &Place {
        &self.place
    }

    fn command(&self) -> Vec<String> {
        let program = self.programs.join("postgres");
        let mut words = vec![program.to_str().unwrap().to_owned(), "-D".to_owned()];
        words.extend([self.place.word("data/db"), "-k".to_owned(), self.place.word("run")]);
        words.extend(["-p", "5432", "-h", "", "-F", "-c"].map(str::to_owned));
        words.push(format!("external_pid_file={}", self.place.word("run/pid")));
        words
    }

    fn uid(&self) -> Option<u32> {
        nobody()
    }

    fn processes(&self) -> u64 {
        // Checkpointer, background writer, WAL writer, the two launchers; the session.
        7
    }

    fn stored(&self, name: &str) -> io::Result<bool> {
        let table = "CREATE TABLE IF NOT EXISTS work (name text);";
        let count = format!("{table} SELECT count(*) FROM work WHERE name = '{name}'");
        Ok(self.open()?.query(&count)? == "1")
    }

    fn begin(&mut self, name: &str) -> io::Result<()> {
        let mut session = self.open()?;
        session.query("BEGIN")?;
        session.query(&format!("INSERT INTO work VALUES ('{name}')"))?;
        self.session = Some(session);
        Ok(())
    }

    fn words(&self, stop: Stop) -> &'static [&'static str] {
        match stop.signal {
            Signal::INT => &["received fast shutdown request", "database system is shut down"],
            _ => &["received smart shutdown request", "database system is shut down"],
        }
    }

    /// A session that is told SIGTERM itself ends, whatever the postmaster meant.
    fn keeps(&self, stop: Stop) -> bool {
        stop.signal == Signal::TERM && stop.by != By::Tree
    }

    fn finish(&mut self, _: &mut Running, keeps: bool) {
        let mut session = self.session.take().unwrap();
        if keeps {
            let refused = self.open().err().expect("nobody new is let in").to_string();
            assert!(refused.contains("the database system is shutting down"), "{refused}");
            session.query("COMMIT").unwrap();
        } else {
            let last = session.replies().unwrap_err().to_string();
            assert!(last.contains("terminating connection due to administrator"), "{last}");
        }
    }

    fn settled(&self, _: &str) -> bool {
        let database = self.place.file("data/db");
        let program = self.programs.join("pg_controldata");
        let outcome = Run::argv([program, database.clone()]).env("LC_ALL", "C").run();
        let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let state = text.lines().find_map(|line| line.strip_prefix("Database cluster state:"));
        let state = state.unwrap_or_else(|| panic!("no state: {outcome:#?}"));
        state.trim() == "shut down" && !database.join("postmaster.pid").exists()
    }
}

/// Keys that only the stop writes to the disk, while a slow child is at that too.
pub struct Redis {
    place: Place,
    /// Files that a child never finished, from earlier runs.
    unfinished: usize,
}

impl Redis {
    pub fn new() -> Option<Self> {
        have(&["redis-server"]).then(|| Self { place: Place::new(), unfinished: 0 })
    }

    fn unfinished(&self) -> usize {
        let files = fs::read_dir(self.place.file("data")).unwrap();
        files.filter(|file| file.as_ref().unwrap().file_name() != "dump.rdb").count()
    }

    /// What it replies to each line. Not up to the end of file: a child that is
    /// forked meanwhile holds the connection too.
    fn ask(&self, lines: &str) -> io::Result<String> {
        let mut stream = connect(&self.place.file("run/socket"))?;
        write!(stream, "{lines}ECHO end\r\n")?;
        let mut reply = String::new();
        loop {
            let mut buffer = [0; 4096];
            let read = stream.read(&mut buffer)?;
            reply += &String::from_utf8_lossy(&buffer[..read]);
            match reply.strip_suffix("$3\r\nend\r\n") {
                _ if read == 0 || reply.starts_with('-') || reply.contains("\n-") => {
                    return Err(io::Error::other(reply));
                }
                Some(replies) => return Ok(replies.to_owned()),
                None => {}
            }
        }
    }
}

impl Server for Redis {
    fn place(&self) -> &Place {
        &self.place
    }

    fn command(&self) -> Vec<String> {
        let mut words =
            ["redis-server", "--port", "0", "--save", "3600 1"].map(str::to_owned).to_vec();
        for (option, file) in
            [("unixsocket", "run/socket"), ("pidfile", "run/pid"), ("dir", "data")]
        {
            words.extend([format!("--{option}"), self.place.word(file)]);
        }
        words
    }

    fn uid(&self) -> Option<u32> {
        nobody()
    }

    fn processes(&self) -> u64 {
        2
    }

    fn stored(&self, name: &str) -> io::Result<bool> {
        Ok(self.ask(&format!("EXISTS {name}-9\r\n"))? == ":1\r\n")
    }

    fn begin(&mut self, name: &str) -> io::Result<()> {
        let sets: String = (0..10).map(|n| format!("SET {name}-{n} x\r\n")).collect();
        self.ask(&sets)?;
        self.unfinished = self.unfinished();
        // A child that would write for minutes, but not its parent.
        let delay = "CONFIG SET rdb-key-save-delay";
        let reply =
            self.ask(&format!("{delay} 30000000\r\nBGSAVE\r\n{delay} 0\r\nINFO persistence\r\n"))?;
        assert!(reply.contains("rdb_bgsave_in_progress:1\r\n"), "{reply}");
        Ok(())
    }

    fn words(&self, _: Stop) -> &'static [&'static str] {
        &[
            "User requested shutdown...",
            "There is a child saving an .rdb. Killing it!",
            "DB saved on disk",
            "Redis is now ready to exit, bye bye...",
        ]
    }

    fn keeps(&self, _: Stop) -> bool {
        true
    }

    fn finish(&mut self, _: &mut Running, _: bool) {}

    /// The keys are in the file, and what the child wrote is gone.
    fn settled(&self, name: &str) -> bool {
        let dump = fs::read(self.place.file("data/dump.rdb")).unwrap_or_default();
        let key = format!("{name}-9");
        self.unfinished() == self.unfinished
            && dump.windows(key.len()).any(|bytes| bytes == key.as_bytes())
    }
}
