//! Forwards a plugin's `tracing` events to the driver's log.
//!
//! A plugin library has its own copy of `tracing`, without a subscriber. The first host with a log becomes its subscriber. A
//! linked-in plugin shares the driver's subscriber. Its host has no log.

use std::{
    ffi::c_void,
    fmt::{self, Write},
    mem::offset_of,
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
};

use crate::abi::{Log, RawHost, log_level};

/// Starts to log to the host, if the host has a log and there is no subscriber.
///
/// # Safety
/// `host` is null or refers to a host with a correct size.
pub(crate) unsafe fn open(host: *const RawHost) {
    /// The end of the fields of 1.1. A later version has more, of which an older host knows nothing.
    const SIZE_1_1: usize = offset_of!(RawHost, log_context) + size_of::<*mut c_void>();
    // SAFETY: guaranteed by the caller. The size tells which fields exist.
    let logs = !host.is_null() && unsafe { (*host).size } as usize >= SIZE_1_1;
    if !logs {
        return;
    }
    // SAFETY: these fields exist.
    let (log, context, level) = unsafe { ((*host).log, (*host).log_context, (*host).log_level) };
    if let Some(log) = log {
        // Fails if there is a subscriber.
        let _ = tracing::subscriber::set_global_default(ToHost {
            log,
            context,
            max: filter(level),
        });
    }
}

struct ToHost {
    log: Log,
    context: *mut c_void,
    max: LevelFilter,
}

// SAFETY: the interface allows calls of the log from any thread.
unsafe impl Send for ToHost {}
// SAFETY: as above, and from several threads at a time.
unsafe impl Sync for ToHost {}

fn filter(level: i32) -> LevelFilter {
    match level {
        ..=0 => LevelFilter::OFF,
        log_level::ERROR => LevelFilter::ERROR,
        log_level::WARN => LevelFilter::WARN,
        log_level::INFO => LevelFilter::INFO,
        log_level::DEBUG => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

fn number(level: Level) -> i32 {
    match level {
        Level::ERROR => log_level::ERROR,
        Level::WARN => log_level::WARN,
        Level::INFO => log_level::INFO,
        Level::DEBUG => log_level::DEBUG,
        Level::TRACE => log_level::TRACE,
    }
}

/// Takes events only. Spans are ignored.
impl Subscriber for ToHost {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.max
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.max)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = LogLine::default();
        event.record(&mut line);
        let text = line.message + &line.fields;
        let level = number(*event.metadata().level());
        // SAFETY: the host takes lines from any thread at any time. The text is valid during the call.
        unsafe { (self.log)(self.context, level, text.as_ptr(), text.len()) };
    }

    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}
    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}
    fn enter(&self, _span: &span::Id) {}
    fn exit(&self, _span: &span::Id) {}
}

/// `message name=value name=value`
#[derive(Default)]
struct LogLine {
    message: String,
    fields: String,
}

impl Visit for LogLine {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{slice, sync::Mutex};

    type Lines = Mutex<Vec<(i32, String)>>;

    unsafe extern "C" fn keep(context: *mut c_void, level: i32, text: *const u8, len: usize) {
        // SAFETY: the test passes its lines, and the subscriber a text.
        let (lines, text) = unsafe {
            let text = slice::from_raw_parts(text, len);
            (&*context.cast::<Lines>(), String::from_utf8_lossy(text))
        };
        lines.lock().unwrap().push((level, text.into_owned()));
    }

    #[test]
    fn an_event_is_one_line_with_its_fields() {
        let lines = Lines::default();
        let subscriber = ToHost {
            log: keep,
            context: (&raw const lines).cast_mut().cast(),
            max: filter(log_level::INFO),
        };
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::info_span!("around").entered();
            tracing::warn!(group = "g", count = 3, "no hosts in {}", "here");
            tracing::debug!("too much");
        });
        let expected = (
            log_level::WARN,
            r#"no hosts in here group="g" count=3"#.to_owned(),
        );
        assert_eq!(*lines.lock().unwrap(), [expected]);
    }
}
