//! Firefox, driven by its own protocol, Marionette: messages of JSON, each after its length and a colon
//! (https://firefox-source-docs.mozilla.org/testing/marionette/Protocol.html). Debian packages no other driver.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};

use super::{Folder, skip, until};

/// Any free port, no first pages, and no request of the browser's own.
const PREFERENCES: &str = r#"
user_pref("marionette.port", 0);
user_pref("browser.startup.page", 0);
user_pref("browser.aboutwelcome.enabled", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("app.update.disabledForTesting", true);
"#;

/// A browser with a page open; closed when dropped.
pub struct Firefox {
    browser: Child,
    stream: RefCell<TcpStream>,
    next: Cell<u64>,
    _profile: Folder,
}

impl Firefox {
    /// `None`, after a visible line, where there is no Firefox.
    pub fn start(test: &str) -> Option<Self> {
        let profile = Folder::new();
        fs::write(profile.file("user.js"), PREFERENCES).unwrap();
        let mut command = Command::new("firefox-esr");
        command.args(["--headless", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile"]);
        command.arg(profile.path()).env("HOME", profile.path()).env("MOZ_DISABLE_CONTENT_SANDBOX", "1");
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(browser) = spawned else {
            skip(test, "firefox-esr is not installed; `scripts/setup test` installs it");
            return None;
        };
        let mut stream = None;
        until("Firefox listens", || {
            let port = fs::read_to_string(profile.file("MarionetteActivePort")).unwrap_or_default();
            stream = port.trim().parse::<u16>().ok().and_then(|port| TcpStream::connect(("127.0.0.1", port)).ok());
            stream.is_some()
        });
        let firefox = Self { browser, stream: RefCell::new(stream.unwrap()), next: Cell::new(0), _profile: profile };
        let greeting = firefox.message();
        assert_eq!(greeting["marionetteProtocol"], json!(3), "{greeting}");
        firefox.ask("WebDriver:NewSession", &json!({}));
        Some(firefox)
    }

    /// Opens a page that lockmeter made, and waits until it is drawn.
    pub fn open(&self, file: &str) {
        self.ask("WebDriver:Navigate", &json!({ "url": format!("file://{file}") }));
        until("the page is drawn", || !self.js("return document.documentElement.dataset.drawn || null").is_null());
    }

    /// What a script returns.
    pub fn js(&self, script: &str) -> Json {
        self.ask("WebDriver:ExecuteScript", &json!({ "script": script, "args": [] }))["value"].take()
    }

    /// Errors of pages that are files: of their scripts, and of what their policies forbid.
    pub fn errors(&self) -> Vec<String> {
        self.ask("Marionette:SetContext", &json!({ "value": "chrome" }));
        let found = self.js(
            "return Services.console.getMessageArray().filter((message) => message instanceof Ci.nsIScriptError)
                 .filter((error) => error.sourceName.startsWith('file:') && !(error.flags & Ci.nsIScriptError.warningFlag))
                 .map((error) => error.errorMessage)",
        );
        self.ask("Marionette:SetContext", &json!({ "value": "content" }));
        serde_json::from_value(found).unwrap()
    }

    fn ask(&self, command: &str, parameters: &Json) -> Json {
        let number = self.next.replace(self.next.get() + 1);
        let message = json!([0, number, command, parameters]).to_string();
        write!(self.stream.borrow_mut(), "{}:{message}", message.len()).unwrap();
        let answer = self.message();
        assert!(answer[1] == json!(number) && answer[2].is_null(), "{command} {parameters}: {answer}");
        answer[3].clone()
    }

    fn message(&self) -> Json {
        let mut stream = self.stream.borrow_mut();
        let mut length = 0;
        loop {
            let mut digit = [0];
            stream.read_exact(&mut digit).unwrap();
            match digit[0] {
                b':' => break,
                digit => length = length * 10 + usize::from(digit - b'0'),
            }
        }
        let mut message = vec![0; length];
        stream.read_exact(&mut message).unwrap();
        serde_json::from_slice(&message).unwrap()
    }
}

impl Drop for Firefox {
    fn drop(&mut self) {
        // It ends its own processes; killed, it would leave them behind. It may close the connection before it answers.
        let message = json!([0, self.next.get(), "Marionette:Quit", { "flags": ["eForceQuit"] }]).to_string();
        let _ = write!(self.stream.borrow_mut(), "{}:{message}", message.len());
        let _ = self.browser.wait();
    }
}
