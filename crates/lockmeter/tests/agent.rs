//! `lockmeter agent` as it runs in production: scraped by the real servers, under its unit's capabilities, reloaded and stopped.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::agent::{Agent, ask, get};
use support::{BINARY, Folder, lockmeter, machine, signal, until, workload};

/// A load that contends, ended when dropped.
struct Load(Child);

impl Load {
    fn start(folder: &Folder) -> Self {
        let mut command = workload("dir-churn");
        Self(command.args(["--seconds", "120"]).current_dir(folder.path()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn root_of_repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn url_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Every query of the shipped alerts and of the dashboard, with short windows.
fn shipped_queries() -> Vec<(String, String)> {
    let rules = fs::read_to_string(root_of_repository().join("dist/prometheus/lockmeter.rules.yml")).unwrap();
    let of_rules = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let mut queries: Vec<_> = of_rules.map(|query| ("alert".to_owned(), query.to_owned())).collect();
    let dashboard = fs::read(root_of_repository().join("dist/grafana/lockmeter.json")).unwrap();
    let dashboard: Value = serde_json::from_slice(&dashboard).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "10s").replace("$instance", ".+");
            queries.push(("panel".to_owned(), query));
        }
    }
    assert!(queries.len() > 12, "{queries:?}");
    queries.into_iter().map(|(what, query)| (what, query.replace("[5m]", "[10s]"))).collect()
}

/// Waits until a server knows the lock's rate, then has it execute all shipped queries.
fn check_queries(server: &str) {
    let ask = |query: &str| -> Value {
        let (status, body) = get(server, &format!("/api/v1/query?query={}", url_encoded(query)), "");
        assert!(status == 200 || body.is_empty(), "{query}: {status} {body}");
        serde_json::from_str(&body).unwrap_or_default()
    };
    let results = |answer: &Value| answer["data"]["result"].as_array().map_or(0, Vec::len);
    until("the server has two scrapes", || results(&ask("rate(lockmeter_lock_wait_seconds_count[10s]) > 0")) > 0);
    for (what, query) in shipped_queries() {
        let answer = ask(&query);
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        // What is lost or merged may be nothing; an alert should not hold.
        let may_be_empty = what == "alert" || query.contains("_lost_") || query.contains("_merged_");
        assert!(may_be_empty || results(&answer) > 0, "{query} has no result");
    }
}

#[test]
fn prometheus_and_victoria_metrics_scrape_it_answer_every_shipped_query_and_an_alert_fires() {
    let Some(_machine) = machine("scraped") else { return };
    let folder = Folder::new();
    let _load = Load::start(&folder);
    let agent = Agent::plain(&folder, "workloads = true");
    until("a wait is counted", || agent.sum("lockmeter_lock_wait_seconds_count", "i_rwsem") > 0.0);

    let mut promtool = Command::new("promtool");
    let mut promtool =
        promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(agent.metrics().as_bytes()).unwrap();
    let checked = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && said.is_empty(), "{said}");

    // The shipped alerts, with short windows and no patience.
    let rules = fs::read_to_string(root_of_repository().join("dist/prometheus/lockmeter.rules.yml")).unwrap();
    let hurried = rules.replace("[5m]", "[10s]").replace("for: 10m", "for: 0s").replace("> 2", "> 0.5");
    fs::write(folder.file("rules.yml"), hurried).unwrap();
    let address = &agent.address;
    let config = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [rules.yml]\n\
         scrape_configs: [{{ job_name: lockmeter, static_configs: [{{ targets: ['{address}'] }}] }}]\n"
    );
    fs::write(folder.file("prometheus.yml"), &config).unwrap();
    fs::write(
        folder.file("scrape.yml"),
        config.replace("rule_files: [rules.yml]\n", "").replace(", evaluation_interval: 1s", ""),
    )
    .unwrap();
    let mut servers = Vec::new();
    let mut start = |program: &str, arguments: &[String]| {
        let mut command = Command::new(program);
        let log = fs::OpenOptions::new().create(true).append(true).open(folder.file("servers.log")).unwrap();
        command.args(arguments).current_dir(folder.path()).stdout(Stdio::null()).stderr(log);
        servers.push(Load(command.spawn().unwrap()));
    };
    let [prometheus, native, victoria] = [(); 3].map(|()| free_address());
    let of_prometheus = |address: &str, storage: &str| {
        [
            format!("--web.listen-address={address}"),
            "--config.file=prometheus.yml".into(),
            format!("--storage.tsdb.path={storage}"),
        ]
    };
    start("prometheus", &of_prometheus(&prometheus, "classic"));
    // With native histograms it asks for protobuf, and keeps no classic ones.
    let flag = "--enable-feature=native-histograms".to_owned();
    start("prometheus", &[&of_prometheus(&native, "native")[..], &[flag]].concat());
    let flags =
        [format!("-httpListenAddr={victoria}"), "-promscrape.config=scrape.yml".into(), "-storageDataPath=vm".into()];
    start("victoria-metrics", &[&flags[..], &["-search.latencyOffset=0s".into()]].concat());

    check_queries(&victoria);
    check_queries(&prometheus);
    let query = "/api/v1/query?query=histogram_count(lockmeter_lock_wait_seconds)";
    until("there are native histograms", || get(&native, query, "").1.contains("i_rwsem"));
    until("an alert fires", || {
        let alerts = get(&prometheus, "/api/v1/alerts", "").1;
        alerts.contains("\"alertname\":\"LockContended\"") && alerts.contains("\"state\":\"firing\"")
    });
    assert!(agent.sum("lockmeter_agent_http_requests_total", "protobuf") > 0.0);
    drop(servers);
    assert_eq!(agent.end(), Some(0));
}

fn free_address() -> String {
    // Free a moment ago; Prometheus takes no port 0.
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn systemd_hears_of_it_and_the_units_capabilities_are_enough() {
    let Some(_machine) = machine("notified") else { return };
    let folder = Folder::new();
    let unit = fs::read_to_string(root_of_repository().join("dist/lockmeter-agent.service")).unwrap();
    let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let capabilities: String =
        line.split(' ').map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase())).collect();
    let socket = UnixDatagram::bind(folder.file("notify")).unwrap();
    socket.set_read_timeout(Some(support::PATIENCE)).unwrap();
    let mut command = Command::new("setpriv");
    command.args([
        "--no-new-privs",
        &format!("--bounding-set=-all{capabilities}"),
        &format!("--inh-caps=-all{capabilities}"),
    ]);
    // setpriv becomes the agent, whose number is not known before: a shell tells it.
    command.args(["sh", "-c", "WATCHDOG_PID=$$ exec \"$@\"", "sh", BINARY]);
    command.env("NOTIFY_SOCKET", folder.file("notify")).env("WATCHDOG_USEC", "400000");
    let agent = Agent::start(&folder, "", command);
    let pid = agent.child.id();
    let hear = |wanted: &str| {
        let mut text = [0; 256];
        loop {
            let length = socket.recv(&mut text).unwrap();
            let heard = String::from_utf8_lossy(&text[..length]).into_owned();
            if heard.starts_with(wanted) {
                return;
            }
        }
    };
    hear("READY=1");
    hear("WATCHDOG=1");
    until("an interval is metered", || agent.sum("lockmeter_agent_intervals_total", "") > 0.0);
    assert!(agent.sum("lockmeter_thread_seconds_total", "running") > 0.0);
    assert_eq!(agent.sum("lockmeter_agent_detail_metered", ""), 3.0, "threads, programs and latency");
    fs::write(&agent.config, "interval = \"1s\"\nlatency = false\n").unwrap();
    signal(pid, libc::SIGHUP);
    hear("RELOADING=1");
    hear("READY=1");
    until("it meters less", || agent.sum("lockmeter_agent_detail_metered", "") == 2.0);
    fs::write(&agent.config, "interval = \"never\"\n").unwrap();
    signal(pid, libc::SIGHUP);
    until("it refuses a bad one", || agent.sum("lockmeter_agent_reloads_total", "refused") == 1.0);
    let before = agent.sum("lockmeter_agent_intervals_total", "");
    until("it goes on", || agent.sum("lockmeter_agent_intervals_total", "") > before);
    assert_eq!(agent.end(), Some(0));
    hear("STOPPING=1");
}

#[test]
fn hostile_clients_take_no_more_than_a_little() {
    let Some(_machine) = machine("hostile") else { return };
    let folder = Folder::new();
    let agent = Agent::plain(&folder, "");
    let address = agent.address.as_str();
    assert_eq!(get(address, "/etc/passwd", "").0, 404);
    assert_eq!(get(address, "/../metrics", "").0, 404);
    assert_eq!(get(address, "/metrics?collect[]=x", "").0, 200);
    assert_eq!(ask(address, b"POST /metrics HTTP/1.1\r\n\r\n").0, 405);
    assert_eq!(ask(address, b"\x16\x03\x01\x02\x00\x01").0, 400, "TLS");
    assert_eq!(ask(address, format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(16 << 10)).as_bytes()).0, 431);
    assert_eq!(ask(address, format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100)).as_bytes()).0, 431);
    // More than may be at a time, none of which ever asks: after the time limit there is room again.
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    until("it has let them go", || get(address, "/", "").0 == 200);
    drop(silent);
    let statuses: Vec<u32> = (0..60).map(|_| get(address, "/metrics", "").0).collect();
    assert!(statuses.contains(&429) && statuses.contains(&200), "{statuses:?}");
    until("a second has passed", || get(address, "/metrics", "").0 == 200);
    for result in
        ["not_found", "bad_method", "not_http", "too_large", "too_slow", "too_many_connections", "too_many_requests"]
    {
        let counted = || agent.sum("lockmeter_agent_http_requests_total", &format!("\"{result}\""));
        until(result, || counted() > 0.0);
    }
    assert_eq!(agent.end(), Some(0));
}

#[test]
fn its_unit_exposes_little() {
    let unit = root_of_repository().join("dist/lockmeter-agent.service");
    let checked = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold=30"])
        .arg(unit)
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn a_bad_configuration_and_one_of_somebody_else_are_refused_in_one_sentence() {
    let folder = Folder::new();
    let file = folder.file("agent.toml");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        let ended = lockmeter(["agent", "--check", "--config", &file]).output().unwrap();
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    assert_eq!(check("interval = \"5s\"").0, Some(0));
    let (status, said) = check("intervall = \"5s\"");
    assert!(status == Some(4) && said.contains("agent.toml") && said.lines().count() == 1, "{said}");
    let printed = lockmeter(["agent", "--print-config"]).output().unwrap();
    assert_eq!(check(&String::from_utf8(printed.stdout).unwrap()).0, Some(0));
    // SAFETY: takes nothing and returns a number.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
        let (status, said) = check("interval = \"5s\"");
        assert!(status == Some(4) && said.contains("belongs to user 65534"), "{said}");
    }
}

#[test]
fn the_reference_lists_every_metric_with_its_type_and_labels() {
    let page = fs::read_to_string(root_of_repository().join("docs/reference/metrics.md")).unwrap();
    let rows: BTreeMap<&str, &str> =
        page.lines().filter_map(|line| line.strip_prefix("| `lockmeter_")?.split_once("` | ")).collect();
    for metric in lockmeter_agent::metrics::Metric::ALL {
        let name = metric.name().trim_start_matches("lockmeter_");
        let labels: Vec<String> = metric.labels().iter().map(|label| format!("`{label}`")).collect();
        let row = format!("{} | {} | {} |", metric.kind().name(), labels.join(", "), metric.help());
        assert_eq!(rows.get(name).copied(), Some(row.as_str()), "{name} in docs/reference/metrics.md");
    }
    assert_eq!(rows.len(), lockmeter_agent::metrics::Metric::ALL.len(), "rows without a metric");
}
