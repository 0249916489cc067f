//! Programs in C and C++, compiled against the headers: a scheduler, two servers and two workers of each.

#![allow(clippy::unwrap_used, reason = "a helper of a test is a test")]

use std::{
    env,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// How often each program runs.
const RUNS: usize = 4;

/// Warnings of these programs are errors.
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// Where cargo puts the library: beside this test, or above it.
fn library() -> PathBuf {
    let test = env::current_exe().unwrap();
    let folders = test.ancestors().skip(1).take(2);
    let mut folders = folders.filter(|folder| folder.join("libelasticrun_ps_c.so").exists());
    let found = folders.next();
    found
        .expect("no libelasticrun_ps_c.so: run cargo build --workspace")
        .to_owned()
}

/// Compiles a program for a test.
fn compile(source: &str, test: &str, flags: &[&str]) -> PathBuf {
    let (compiler, standard, package) = match source.ends_with(".c") {
        true => (
            env::var("CC").unwrap_or("gcc".to_owned()),
            "-std=c11",
            "gcc",
        ),
        false => (
            env::var("CXX").unwrap_or("g++".to_owned()),
            "-std=c++17",
            "g++",
        ),
    };
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(test);
    let library = library();
    let mut command = Command::new(&compiler);
    command
        .args([standard, "-O1", "-pthread"])
        .args(WARNINGS)
        .args(flags)
        .arg("-I")
        .arg(home.join("include"))
        .arg(home.join("tests/programs").join(source))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&library)
        .arg("-lelasticrun_ps_c")
        .arg(format!("-Wl,-rpath,{}", library.display()));
    let output = command.output().unwrap_or_else(|error| {
        panic!("this test needs {compiler} ({error}): apt-get install {package}, or set CC and CXX")
    });
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{source}: {text}");
    program
}

struct Nodes(Vec<(&'static str, Child)>);

impl Drop for Nodes {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a job, and returns what its nodes have printed.
fn run(program: &Path, variables: &[(&str, &str)]) -> String {
    // It was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let roles = ["scheduler", "server", "server", "worker", "worker"];
    let nodes = roles.map(|role| {
        let child = Command::new(program)
            .env("DMLC_ROLE", role)
            .env("DMLC_NUM_SERVER", "2")
            .env("DMLC_NUM_WORKER", "2")
            .env("DMLC_PS_ROOT_URI", "127.0.0.1")
            .env("DMLC_PS_ROOT_PORT", port.to_string())
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        (role, child)
    });
    let mut nodes = Nodes(nodes.into());
    let mut all = String::new();
    for (role, child) in &mut nodes.0 {
        let mut printed = String::new();
        let mut output = child.stdout.take().unwrap();
        std::io::Read::read_to_string(&mut output, &mut printed).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success(), "{role}: {status}: {printed}");
        all.push_str(&printed);
    }
    all
}

#[test]
fn pushes_and_pulls_of_ps_lite() {
    let program = compile("kv.cc", "kv", &[]);
    for _ in 0..RUNS {
        let printed = run(&program, &[]);
        assert_eq!(
            printed.matches("error 0, called 25").count(),
            2,
            "{printed}"
        );
    }
}

#[test]
fn they_survive_lost_messages() {
    let program = compile("kv.cc", "kv-drop", &[]);
    let variables = [
        ("PS_RESEND", "1"),
        ("PS_RESEND_TIMEOUT", "100"),
        ("PS_DROP_MSG", "10"),
    ];
    for _ in 0..RUNS {
        let printed = run(&program, &variables);
        assert_eq!(
            printed.matches("error 0, called 25").count(),
            2,
            "{printed}"
        );
    }
}

#[test]
fn the_rest_of_the_front_for_cpp() {
    let program = compile("features.cc", "features", &[]);
    for _ in 0..RUNS {
        assert_eq!(run(&program, &[]).matches("all").count(), 5);
    }
}

#[test]
fn programs_with_keys_of_32_bits() {
    for (source, printed, times) in [
        ("kv.cc", "error 0, called 25", 2),
        ("features.cc", "all", 5),
    ] {
        let program = compile(source, &format!("{source}32"), &["-DUSE_KEY32=1"]);
        for _ in 0..RUNS {
            let all = run(&program, &[]);
            assert_eq!(all.matches(printed).count(), times, "{all}");
        }
    }
}

#[test]
fn a_program_in_c() {
    let program = compile("plain.c", "plain", &[]);
    for _ in 0..RUNS {
        assert_eq!(run(&program, &[]).matches("plain").count(), 5);
    }
}
