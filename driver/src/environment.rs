//! Selects the variables of the driver that workers on other hosts get.
//!
//! A user's environment holds credentials of clouds, registries and trackers. So the driver sends only variables that
//! configure training, and those that the user names by `--env`. With `--worker-env host` it sends only the latter. Workers on
//! this machine inherit the whole environment.

use std::{collections::BTreeMap, env};

use crate::config::{Variable, WorkerEnv};

/// Variables that are sent. A name that ends with `*` is a prefix.
const SENT: [&str; 47] = [
    "PATH",
    "PYTHON*",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "VIRTUAL_ENV",
    "CONDA_*",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "OMP_*",
    "GOMP_*",
    "KMP_*",
    "MKL_*",
    "OPENBLAS_*",
    "BLIS_*",
    "VECLIB_*",
    "NUMEXPR_*",
    "MALLOC_*",
    "GLIBC_TUNABLES",
    "CUDA_*",
    "CUDNN_*",
    "CUBLAS_*",
    "NVIDIA_*",
    "HIP_*",
    "HSA_*",
    "ROCR_*",
    "ROCM_*",
    "NCCL_*",
    "RCCL_*",
    "GLOO_*",
    "UCX_*",
    "UCC_*",
    "FI_*",
    "IBV_*",
    "TORCH_*",
    "TORCHINDUCTOR_*",
    "PYTORCH_*",
    "TRITON_*",
    "TF_*",
    "XLA_*",
    "JAX_*",
    "KERAS_*",
    "HOROVOD_*",
    "RUST_LOG",
    "RUST_BACKTRACE",
    "_ELASTICRUN_*",
];

/// Parts of names of secrets. Such a variable is sent only if the user names it.
const PRIVATE: [&str; 7] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
    "PRIVATE",
    "API_KEY",
];

/// The variables that are sent, and how many are not.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) withheld: usize,
}

/// Selects from the environment of this process.
pub(crate) fn sent(whose: WorkerEnv, named: &[Variable]) -> Sent {
    let all = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    match whose {
        WorkerEnv::Driver => choose(all, named),
        // Nothing is withheld that a worker would expect.
        WorkerEnv::Host => Sent {
            withheld: 0,
            ..choose(all.filter(|(name, _)| is_named(name, named)), named)
        },
    }
}

fn is_named(name: &str, named: &[Variable]) -> bool {
    named
        .iter()
        .any(|variable| variable.name == name && variable.value.is_none())
}

fn choose(all: impl Iterator<Item = (String, String)>, named: &[Variable]) -> Sent {
    let mut variables = BTreeMap::new();
    let mut withheld = 0;
    for (name, value) in all {
        if is_sent(&name) || is_named(&name, named) {
            variables.insert(name, value);
        } else if !name.starts_with("ELASTICRUN_") {
            withheld += 1;
        }
    }
    for Variable { name, value } in named {
        if let Some(value) = value {
            variables.insert(name.clone(), value.clone());
        }
    }
    Sent {
        variables,
        withheld,
    }
}

fn is_sent(name: &str) -> bool {
    let listed = SENT.iter().any(|entry| match entry.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *entry,
    });
    listed && !PRIVATE.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str], named: &[(&str, Option<&str>)]) -> (Vec<String>, usize) {
        let all = names
            .iter()
            .map(|name| ((*name).to_owned(), format!("own {name}")));
        let named: Vec<_> = named
            .iter()
            .map(|(name, value)| Variable {
                name: (*name).to_owned(),
                value: value.map(str::to_owned),
            })
            .collect();
        let sent = choose(all, &named);
        let pairs = sent.variables.iter();
        (
            pairs
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
            sent.withheld,
        )
    }

    #[test]
    fn variables_of_training_are_sent_and_credentials_are_not() {
        let names = [
            "PATH",
            "OMP_NUM_THREADS",
            "NCCL_DEBUG",
            "AWS_SECRET_ACCESS_KEY",
            "HF_TOKEN",
            "KERAS_API_KEY",
            "HOME",
            "ELASTICRUN_NP",
        ];
        let (sent, withheld) = chosen(&names, &[]);
        assert_eq!(
            sent,
            [
                "NCCL_DEBUG=own NCCL_DEBUG",
                "OMP_NUM_THREADS=own OMP_NUM_THREADS",
                "PATH=own PATH"
            ]
        );
        assert_eq!(withheld, 4);
    }

    #[test]
    fn variables_that_the_user_names_are_always_sent() {
        let named = [
            ("HF_TOKEN", None),
            ("MODE", Some("fast")),
            ("PATH", Some("/x")),
        ];
        let (sent, withheld) = chosen(&["HF_TOKEN", "PATH", "HOME"], &named);
        assert_eq!(sent, ["HF_TOKEN=own HF_TOKEN", "MODE=fast", "PATH=/x"]);
        assert_eq!(withheld, 1);
    }

    #[test]
    fn with_the_environment_of_hosts_only_named_variables_are_sent() {
        let named = [("PATH", None), ("MINE", Some("1")), ("NOT_SET_HERE", None)];
        let named = named.map(|(name, value)| Variable {
            name: name.to_owned(),
            value: value.map(str::to_owned),
        });
        let Sent {
            variables,
            withheld,
        } = sent(WorkerEnv::Host, &named);
        let names: Vec<_> = variables.keys().map(String::as_str).collect();
        assert_eq!((names, withheld), (vec!["MINE", "PATH"], 0));
    }
}
