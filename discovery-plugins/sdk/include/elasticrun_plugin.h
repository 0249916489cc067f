/* elasticrun_plugin.h - the binary interface between elasticrun and a discovery plugin, version 1.1.
 *
 * A plugin NAME is a library libelasticrun_plugin_NAME.so that exports one constant of type
 * elasticrun_plugin under the library's own name ('-' in NAME is '_' in both):
 *
 *     const elasticrun_plugin elasticrun_plugin_NAME = { ELASTICRUN_PLUGIN_MAGIC, ... };
 *
 * It is read before any function of the plugin is called.
 *
 * - Fields are only ever appended. Each side reads no more than `size` bytes of what the other gives it.
 *   The major versions must be equal; the minor version counts what was appended.
 * - Text is UTF-8 JSON; unknown fields are ignored.
 * - Nothing may unwind or long-jump out of a function. The calls on one instance come one after the other,
 *   from any thread.
 * - Nothing is written to standard output: use the log of elasticrun_host, or standard error.
 * - What came with 1.1 says so. A plugin that was built for 1.0 goes on working.
 */
#ifndef ELASTICRUN_PLUGIN_H
#define ELASTICRUN_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ELASTICRUN_PLUGIN_MAGIC { 'E', 'R', 'U', 'N', 'P', 'L', 'U', 'G' }
#define ELASTICRUN_PLUGIN_ABI_MAJOR 1
#define ELASTICRUN_PLUGIN_ABI_MINOR 1

/* Bits of elasticrun_plugin.flags. */
#define ELASTICRUN_PLUGIN_POLL  (UINT64_C(1) << 0) /* it answers poll; needed */
#define ELASTICRUN_PLUGIN_WATCH (UINT64_C(1) << 1) /* 1.1: it answers watch */
#define ELASTICRUN_PLUGIN_COMMAND (UINT64_C(1) << 2) /* 1.1: it answers command */

/* What a call comes to. A code that is not known counts as retryable. */
enum {
    ELASTICRUN_OK = 0,
    ELASTICRUN_RETRYABLE = 1,     /* it failed, and may work next time */
    ELASTICRUN_PANIC = 2,         /* the instance can only be destroyed */
    ELASTICRUN_BAD_CONFIG = 3,    /* the configuration is wrong */
    ELASTICRUN_AUTH = 4,          /* the source does not let us in */
    ELASTICRUN_THROTTLED = 5,     /* the source asks us to slow down */
    ELASTICRUN_UNKNOWN_GROUP = 6  /* the source does not know the group */
};

/* Bytes that the plugin made and the plugin frees. At most 4 MiB. */
typedef struct elasticrun_buffer {
    uint8_t *data; /* NULL for none */
    size_t len;
} elasticrun_buffer;

/* Levels of the log; a greater number matters less. */
enum {
    ELASTICRUN_LOG_ERROR = 1,
    ELASTICRUN_LOG_WARN = 2,
    ELASTICRUN_LOG_INFO = 3,
    ELASTICRUN_LOG_DEBUG = 4,
    ELASTICRUN_LOG_TRACE = 5
};

/* The host, as it shows itself to create. Copy what you want to keep. */
typedef struct elasticrun_host {
    uint32_t size;
    uint16_t abi_major;
    uint16_t abi_minor;
    /* 1.1, if size covers it: the greatest level that is worth a call of log; 0 for none. */
    int32_t log_level;
    /* 1.1: takes a line (UTF-8, without its end) for the driver's log; NULL: nobody wants it. It may be
     * called from any thread, for ever. */
    void (*log)(void *context, int32_t level, const uint8_t *text, size_t text_len);
    void *log_context;
} elasticrun_host;

typedef struct elasticrun_plugin {
    uint8_t magic[8];   /* ELASTICRUN_PLUGIN_MAGIC */
    uint16_t abi_major; /* ELASTICRUN_PLUGIN_ABI_MAJOR */
    uint16_t abi_minor; /* ELASTICRUN_PLUGIN_ABI_MINOR */
    uint32_t size;      /* sizeof(elasticrun_plugin) */
    uint64_t flags;

    /* {"name": "...", "version": "...", "license": "...", "description": "...",
     *  "config": {a JSON schema of the options}, "environment": ["NAME"], "permissions": ["..."]}
     * of which only "name" and "version" are needed. `environment` names the variables that the plugin needs: it
     * sees no others, but PATH, HOME, the locale and the proxies. `permissions` is for people. */
    const uint8_t *manifest;
    size_t manifest_len;

    /* Reads the configuration, a JSON object (numbers and truth values may be strings, for the command line
     * knows only text), and on ELASTICRUN_OK stores an instance. `host` and `config` are valid during the
     * call only. */
    int32_t (*create)(const elasticrun_host *host, const uint8_t *config, size_t config_len,
                      void **instance, elasticrun_buffer *answer);

    /* The hosts as they are now. To be back within the deadline. On ELASTICRUN_OK the answer is
     *   {"hosts": [{"id": "i-1", "address": "10.0.0.1", "slots": 8, "state": "ready", ...}],
     *    "complete": true, "next_poll_ms": 5000, "target_size": 3}
     * of which only "hosts" and their "id" are needed. Further fields of a host: addresses, port, user,
     * slots_from (explicit | label | accelerators | probe), state (ready | pending | draining | gone),
     * reason, deadline_ms, spot, zone, type, labels. */
    int32_t (*poll)(void *instance, uint64_t deadline_ms, elasticrun_buffer *answer);

    /* The last call on an instance, also after ELASTICRUN_PANIC. */
    int32_t (*destroy)(void *instance);

    /* Takes an answer back. It may be called at any time, also after destroy. */
    void (*free)(elasticrun_buffer buffer);

    /* 1.1, with ELASTICRUN_PLUGIN_WATCH: called once, behind create. After ELASTICRUN_OK the plugin may call
     * changed(context) from any thread until destroy has returned. It means "poll me now". */
    int32_t (*watch)(void *instance, void (*changed)(void *context), void *context,
                     elasticrun_buffer *answer);

    /* 1.1, with ELASTICRUN_PLUGIN_COMMAND: the host tells or asks something.
     *   {"command": "draining", "host": "i-1"}   the job is leaving the host
     *   {"command": "drained", "host": "i-1"}    it has left it: the source may take it
     *   {"command": "self-test"}                 whether the plugin could do its work: access, permissions
     * A command that the plugin does not know is answered ELASTICRUN_OK. */
    int32_t (*command)(void *instance, const uint8_t *command, size_t command_len, uint64_t deadline_ms,
                       elasticrun_buffer *answer);
} elasticrun_plugin;

/* A code other than ELASTICRUN_OK comes with an answer {"message": "...", "retry_after_ms": 5000}, or with
 * none. `answer` is empty when a function is called; what it holds afterwards is handed to free. */

#ifdef __cplusplus
}
#endif

#endif
