//! Fake metadata services of EC2, Compute Engine and Azure, after their documentation. One server for each host
//! serves the paths of all three. The test sets the answers.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

/// The state that a metadata service reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Says {
    /// No notice.
    #[default]
    Nothing,
    /// EC2: the spot instance is interrupted in two minutes.
    SpotInterruption,
    /// EC2: a rebalance recommendation.
    RebalanceRecommendation,
    /// EC2: the Auto Scaling group terminates the instance.
    TargetTerminated,
    /// Compute Engine: the instance is preempted.
    Preempted,
    /// Compute Engine: the instance is terminated for maintenance.
    Maintenance,
    /// Azure: a scheduled event with this id.
    ScheduledEvent(String),
}

#[derive(Debug, Default)]
struct State {
    says: Says,
    /// The path that fails with status 500.
    broken: Option<&'static str>,
    /// Grows with every change: the ETag of Compute Engine.
    version: u64,
    approved: Vec<String>,
    requests: u64,
}

/// A server on its own port, which lives as long as the process.
#[derive(Clone, Debug)]
pub struct Metadata {
    address: SocketAddr,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Metadata {
    /// Starts a server.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let server = Self { address, state };
        let own = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = own.clone();
                thread::spawn(move || server.serve(&stream));
            }
        });
        server
    }

    /// The environment variables that direct an agent to this server.
    pub fn environment(&self) -> [(&'static str, String); 3] {
        let url = format!("http://{}", self.address);
        [
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", url.clone()),
            ("GCE_METADATA_HOST", self.address.to_string()),
            ("ELASTICRUN_AZURE_IMDS", url),
        ]
    }

    /// Changes the reported state.
    pub fn say(&self, says: Says) {
        self.change(|state| {
            state.says = says;
            state.version += 1;
        });
    }

    /// Answers a path below `/latest/` with status 500 from now on.
    pub fn break_path(&self, path: &'static str) {
        self.change(|state| state.broken = Some(path));
    }

    /// Ids of the approved events of Azure.
    pub fn approved(&self) -> Vec<String> {
        self.change(|state| state.approved.clone())
    }

    /// Number of requests so far.
    pub fn requests(&self) -> u64 {
        self.change(|state| state.requests)
    }

    fn change<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        let (state, changed) = &*self.state;
        let result = with(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
        result
    }

    /// Serves one request on a connection. A client that disconnects early ends it.
    fn serve(&self, stream: &TcpStream) -> Option<()> {
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        lines.read_line(&mut line).ok()?;
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim().split_once(':') else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers
            .get("content-length")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        let mut body = vec![0; length];
        lines.read_exact(&mut body).ok()?;
        let request = Request {
            method,
            target,
            headers,
            body,
        };
        let (status, text, etag) = self.answer(&request);
        let etag = etag.map_or(String::new(), |etag| format!("ETag: {etag}\r\n"));
        let length = text.len();
        let mut stream = stream;
        write!(
            stream,
            "HTTP/1.1 {status} \r\nContent-Length: {length}\r\n{etag}Connection: close\r\n\r\n{text}"
        )
        .ok()
    }

    fn answer(&self, request: &Request) -> (u16, String, Option<u64>) {
        let (says, broken) = self.change(|state| {
            state.requests += 1;
            (state.says.clone(), state.broken)
        });
        let (path, query) = request
            .target
            .split_once('?')
            .unwrap_or((&request.target, ""));
        let found = |text: &str| (200, text.to_owned(), None);
        let none = (404, String::new(), None);
        let if_said = |what: &Says, text: String| {
            if says == *what {
                (200, text, None)
            } else {
                (404, String::new(), None)
            }
        };
        if let Some(rest) = path.strip_prefix("/latest/") {
            if rest == "api/token" {
                let asked = request.method == "PUT"
                    && request
                        .headers
                        .contains_key("x-aws-ec2-metadata-token-ttl-seconds");
                return if asked {
                    found(TOKEN)
                } else {
                    (400, String::new(), None)
                };
            }
            if request
                .headers
                .get("x-aws-ec2-metadata-token")
                .map(String::as_str)
                != Some(TOKEN)
            {
                return (401, String::new(), None);
            }
            return match rest {
                _ if broken == Some(rest) => (500, String::new(), None),
                "meta-data/spot/instance-action" => {
                    let time = in_two_minutes();
                    let text = format!("{{\"action\": \"terminate\", \"time\": \"{time}\"}}");
                    if_said(&Says::SpotInterruption, text)
                }
                "meta-data/events/recommendations/rebalance" => if_said(
                    &Says::RebalanceRecommendation,
                    "{\"noticeTime\": \"2026-01-05T08:22:00Z\"}".to_owned(),
                ),
                "meta-data/autoscaling/target-lifecycle-state" => {
                    found(if says == Says::TargetTerminated {
                        "Terminated"
                    } else {
                        "InService"
                    })
                }
                _ => none,
            };
        }
        if let Some(name) = path.strip_prefix("/computeMetadata/v1/instance/") {
            if request.headers.get("metadata-flavor").map(String::as_str) != Some("Google") {
                return (403, String::new(), None);
            }
            return self.compute_engine(name, query);
        }
        if request.headers.get("metadata").map(String::as_str) != Some("true") {
            return (400, String::new(), None);
        }
        match (request.method.as_str(), path) {
            ("GET", "/metadata/instance/compute/name") => found(MACHINE),
            ("GET", "/metadata/scheduledevents") => found(&scheduled(&says)),
            ("POST", "/metadata/scheduledevents") => {
                let body: serde_json::Value =
                    serde_json::from_slice(&request.body).unwrap_or_default();
                let starts = body["StartRequests"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                let ids = starts.iter().filter_map(|start| start["EventId"].as_str());
                self.change(|state| state.approved.extend(ids.map(str::to_owned)));
                found("")
            }
            _ => none,
        }
    }

    /// The current value. With `wait_for_change`, the answer waits until the ETag differs from `last_etag` or the
    /// timeout passes.
    fn compute_engine(&self, name: &str, query: &str) -> (u16, String, Option<u64>) {
        let asked: BTreeMap<_, _> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .collect();
        let last: Option<u64> = asked.get("last_etag").and_then(|text| text.parse().ok());
        let seconds = asked
            .get("timeout_sec")
            .and_then(|text| text.parse().ok())
            .unwrap_or(60);
        let (state, changed) = &*self.state;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |state: &mut State| {
            asked.contains_key("wait_for_change") && Some(state.version) == last
        };
        let waited = changed.wait_timeout_while(state, Duration::from_secs(seconds), same);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let text = match name {
            "preempted" if state.says == Says::Preempted => "TRUE",
            "preempted" => "FALSE",
            "maintenance-event" if state.says == Says::Maintenance => {
                "TERMINATE_ON_HOST_MAINTENANCE"
            }
            "maintenance-event" => "NONE",
            _ => return (404, String::new(), None),
        };
        (200, text.to_owned(), Some(state.version))
    }
}

struct Request {
    method: String,
    target: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

const TOKEN: &str = "a-token-of-the-stand-in";
const MACHINE: &str = "machine-7";

fn in_two_minutes() -> String {
    let at = SystemTime::now() + Duration::from_secs(120);
    let seconds = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let moment =
        jiff::Timestamp::from_second(i64::try_from(seconds).unwrap_or(0)).unwrap_or_default();
    moment.to_string()
}

fn scheduled(says: &Says) -> String {
    let events = match says {
        Says::ScheduledEvent(id) => serde_json::json!([{
            "EventId": id, "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": [MACHINE],
            "EventStatus": "Scheduled", "NotBefore": "", "EventSource": "Platform", "DurationInSeconds": -1,
        }]),
        _ => serde_json::json!([]),
    };
    serde_json::json!({"DocumentIncarnation": 1, "Events": events}).to_string()
}
