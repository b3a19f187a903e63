//! A real browser that a test drives: Chromium through chromedriver, by the WebDriver protocol (https://www.w3.org/TR/webdriver2/).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value as Json, json};

use super::{skip, until};

/// A desktop window.
pub const DESKTOP: (u32, u32) = (1280, 800);
/// A phone's screen.
pub const PHONE: (u32, u32) = (390, 844);

/// By what a row is told from others: what each of its cells says, under the cell's key. Empty cells are left out.
pub type Table = BTreeMap<Vec<String>, BTreeMap<String, String>>;

/// The rows of a page's table: the values of these attributes, and its cells.
pub fn table_script(attributes: &[&str]) -> String {
    format!(
        "return [...document.querySelectorAll('table.locks tbody tr')].map((row) => [{}.map((name) => row.dataset[name]),
            Object.fromEntries([...row.querySelectorAll('td')].filter((cell) => cell.textContent).map((cell) => [cell.dataset.key, cell.textContent]))])",
        json!(attributes)
    )
}

/// What that script returns.
pub fn table(rows: Json) -> Table {
    serde_json::from_value::<Vec<(Vec<String>, BTreeMap<String, String>)>>(rows).unwrap().into_iter().collect()
}

/// A browser with a page open; closed when dropped.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    /// `None`, after a visible line, where there is no browser.
    pub fn start(test: &str, (width, height): (u32, u32)) -> Option<Self> {
        let spawned = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut driver) = spawned else {
            skip(test, "chromedriver is not installed; `scripts/setup test` installs it");
            return None;
        };
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines.find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        let port = port.expect("chromedriver says on which port it listens");
        // It writes for ever, and must not wait for a reader.
        thread::spawn(move || lines.for_each(drop));
        let mut browser = Self { driver, port, session: String::new() };
        // Chromium's sandbox refuses root, and tests run as root. A container's shared memory is too small for it.
        let window = format!("--window-size={width},{height}");
        let flags =
            ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", &window];
        let mut options = json!({ "args": flags });
        if width < 500 {
            let metrics = json!({ "width": width, "height": height, "pixelRatio": 1.0, "touch": true });
            options["mobileEmulation"] = json!({ "deviceMetrics": metrics });
        }
        let capabilities = json!({
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        });
        let session = browser.ask("POST", "/session", &json!({ "capabilities": { "alwaysMatch": capabilities } }));
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        Some(browser)
    }

    /// Opens a page made by `report --format html` and waits until it is drawn. Milliseconds that took.
    pub fn open(&self, file: &str, hash: &str) -> u64 {
        // A page that is open already would only get another address.
        self.post("/url", &json!({ "url": "about:blank" }));
        self.post("/url", &json!({ "url": format!("file://{file}{hash}") }));
        until("the page is drawn", || !self.js(DRAWN).is_null());
        self.js(DRAWN).as_str().unwrap().parse().unwrap()
    }

    /// What a script returns.
    pub fn js(&self, script: &str) -> Json {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The table as the page shows it, by these attributes.
    pub fn table(&self, attributes: &[&str]) -> Table {
        table(self.js(&table_script(attributes)))
    }

    /// Clicks the first element that this selects, as a user would.
    pub fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.post(&format!("/element/{element}/click"), &json!({}));
    }

    /// Types into the first element that this selects.
    pub fn type_into(&self, selector: &str, words: &str) {
        let element = self.element(selector);
        self.post(&format!("/element/{element}/value"), &json!({ "text": words }));
    }

    /// Presses the pointer's button at one place of the window, moves to another and releases it.
    pub fn drag(&self, from: (i64, i64), to: (i64, i64)) {
        let to_place = |(x, y): (i64, i64)| json!({ "type": "pointerMove", "duration": 0, "x": x, "y": y });
        let middle = ((from.0 + to.0) / 2, (from.1 + to.1) / 2);
        let actions = json!([
            to_place(from), { "type": "pointerDown", "button": 0 }, to_place(middle), to_place(to),
            { "type": "pointerUp", "button": 0 },
        ]);
        self.post("/actions", &json!({ "actions": [{ "type": "pointer", "id": "mouse", "actions": actions }] }));
    }

    /// A command of the DevTools protocol.
    pub fn devtools(&self, command: &str, parameters: &Json) -> Json {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// What the console says since the last call.
    pub fn console(&self) -> Vec<String> {
        self.log("browser")
    }

    /// The addresses that were asked for since the last call.
    pub fn requests(&self) -> Vec<String> {
        let messages =
            self.log("performance").into_iter().map(|message| serde_json::from_str::<Json>(&message).unwrap());
        let sent = messages.filter(|event| event["message"]["method"] == "Network.requestWillBeSent");
        sent.map(|event| event["message"]["params"]["request"]["url"].as_str().unwrap().to_owned()).collect()
    }

    /// Fails if a name of [`name_in_pages`](super::harmful_names::name_in_pages) did something in the page that is open: ran, became an
    /// element, or took the room of others. These must be seen.
    pub fn assert_names_are_text(&self, shown: &[String]) {
        let texts = self.js("return document.body.textContent + [...document.querySelectorAll('[aria-label]')].map((element) => element.getAttribute('aria-label')).join()");
        for name in shown {
            assert!(texts.as_str().unwrap().contains(name), "{name} is not shown");
        }
        let elements =
            "return document.querySelectorAll('main img, main script, main svg[onload], header *:not(p, h1)').length";
        assert_eq!((self.js("return window.hacked === undefined"), self.js(elements)), (json!(true), json!(0)));
        let tall = self.js("return [...document.querySelectorAll('h1, tbody tr, .headline, #selection, li, text, option, p')].map((element) => element.getBoundingClientRect().height).reduce((one, other) => Math.max(one, other))");
        assert!(tall.as_f64().unwrap() < 400.0, "something is {tall} pixels high");
        let wide = self.js("return document.documentElement.scrollWidth <= window.innerWidth");
        assert_eq!(wide, json!(true), "the page is wider than its window");
        // Read out, or shown where the pointer rests.
        let long = self.js(
            "const called = (element) => (element.getAttribute('aria-label') || '') + element.getAttribute('title');
             const named = [...document.querySelectorAll('[aria-label], [title]')];
             return Math.max(...named.map((element) => called(element).length))",
        );
        assert!(long.as_u64().unwrap() < 5_000, "something is called by {long} letters");
        assert_eq!(self.console(), Vec::<String>::new());
    }

    fn log(&self, kind: &str) -> Vec<String> {
        let entries = self.post("/se/log", &json!({ "type": kind }));
        entries.as_array().unwrap().iter().map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    fn element(&self, selector: &str) -> String {
        let found = self.post("/element", &json!({ "using": "css selector", "value": selector }));
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    fn post(&self, path: &str, body: &Json) -> Json {
        self.ask("POST", &format!("{}{path}", self.session), body)
    }

    fn ask(&self, method: &str, path: &str, body: &Json) -> Json {
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: \
             close\r\n\r\n{body}",
            self.port,
            body.len()
        )
        .unwrap();
        // The driver leaves the connection open, whatever it is asked for.
        let mut answer = BufReader::new(stream);
        let mut status = String::new();
        answer.read_line(&mut status).unwrap();
        let headers = answer.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty());
        let length = headers.filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<u64>().unwrap())
        });
        let length = length.last().unwrap_or_else(|| panic!("{method} {path}: {status} without a length"));
        let mut body = String::new();
        answer.take(length).read_to_string(&mut body).unwrap();
        assert!(status.contains(" 200 "), "{method} {path}: {status}: {body}");
        serde_json::from_str::<Json>(&body).unwrap_or_else(|error| panic!("{method} {path}: {error}: {body}"))["value"]
            .take()
    }
}

/// When the page was drawn, in milliseconds after its begin; null before.
const DRAWN: &str = "return document.documentElement.dataset.drawn || null";

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser; killed, it would leave it behind.
        if !self.session.is_empty() {
            self.ask("DELETE", &self.session, &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
