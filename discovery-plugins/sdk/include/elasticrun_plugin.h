/* elasticrun_plugin.h - the binary interface between elasticrun and a discovery plugin, version 1.1.
 *
 * A plugin NAME is a library libelasticrun_plugin_NAME.so that exports one constant of type
 * elasticrun_plugin under the library's own name ('-' in NAME is '_' in both):
 *
 *     const elasticrun_plugin elasticrun_plugin_NAME = { ELASTICRUN_PLUGIN_MAGIC, ... };
 *
 * It is read before any function of the plugin is called.
 *
 * - Fields are only appended. Each side reads at most `size` bytes of the other's struct.
 *   The major versions must be equal. The minor version counts the additions.
 * - Text is UTF-8 JSON; unknown fields are ignored.
 * - Nothing may unwind or long-jump out of a function. Calls on one instance do not overlap, and may come from
 *   any thread.
 * - Write nothing to standard output. Use the log of elasticrun_host, or standard error.
 * - Additions of 1.1 are marked. A plugin that was built for 1.0 still works.
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

/* Result codes of calls. An unknown code counts as retryable. */
enum {
    ELASTICRUN_OK = 0,
    ELASTICRUN_RETRYABLE = 1,     /* a failure that may be temporary */
    ELASTICRUN_PANIC = 2,         /* the instance can only be destroyed */
    ELASTICRUN_BAD_CONFIG = 3,    /* the configuration is wrong */
    ELASTICRUN_AUTH = 4,          /* the source denies access */
    ELASTICRUN_THROTTLED = 5,     /* the source limits the rate of requests */
    ELASTICRUN_UNKNOWN_GROUP = 6  /* the source does not know the group */
};

/* Bytes that the plugin allocates and frees. At most 4 MiB. */
typedef struct elasticrun_buffer {
    uint8_t *data; /* NULL for none */
    size_t len;
} elasticrun_buffer;

/* Levels of the log. A greater number is less important. */
enum {
    ELASTICRUN_LOG_ERROR = 1,
    ELASTICRUN_LOG_WARN = 2,
    ELASTICRUN_LOG_INFO = 3,
    ELASTICRUN_LOG_DEBUG = 4,
    ELASTICRUN_LOG_TRACE = 5
};

/* The description of the host for create. Copy what you need later. */
typedef struct elasticrun_host {
    uint32_t size;
    uint16_t abi_major;
    uint16_t abi_minor;
    /* 1.1, if size covers it: the highest level that the host takes; 0 for none. */
    int32_t log_level;
    /* 1.1: takes a line (UTF-8, without its end) for the driver's log; NULL if there is no log. It may be
     * called from any thread, also after destroy. */
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
     * Only "name" and "version" are required. `environment` names the variables that the plugin needs. It gets
     * only these, PATH, HOME, the locale and the proxies. `permissions` is for the user. */
    const uint8_t *manifest;
    size_t manifest_len;

    /* Parses the configuration, a JSON object (numbers and booleans may be strings, since the command line
     * passes only strings), and on ELASTICRUN_OK stores an instance. `host` and `config` are valid during the
     * call only. */
    int32_t (*create)(const elasticrun_host *host, const uint8_t *config, size_t config_len,
                      void **instance, elasticrun_buffer *answer);

    /* Returns the current hosts, within the deadline. On ELASTICRUN_OK the answer is
     *   {"hosts": [{"id": "i-1", "address": "10.0.0.1", "slots": 8, "state": "ready", ...}],
     *    "complete": true, "next_poll_ms": 5000, "target_size": 3}
     * Only "hosts" and their "id" are required. Further fields of a host: addresses, port, user,
     * slots_from (explicit | label | accelerators | probe), state (ready | pending | draining | gone),
     * reason, deadline_ms, spot, zone, type, labels. */
    int32_t (*poll)(void *instance, uint64_t deadline_ms, elasticrun_buffer *answer);

    /* The last call on an instance, also after ELASTICRUN_PANIC. */
    int32_t (*destroy)(void *instance);

    /* Frees an answer. It may be called at any time, also after destroy. */
    void (*free)(elasticrun_buffer buffer);

    /* 1.1, with ELASTICRUN_PLUGIN_WATCH: called once, after create. After ELASTICRUN_OK the plugin may call
     * changed(context) from any thread until destroy has returned. It requests a poll. */
    int32_t (*watch)(void *instance, void (*changed)(void *context), void *context,
                     elasticrun_buffer *answer);

    /* 1.1, with ELASTICRUN_PLUGIN_COMMAND: executes a command of the host.
     *   {"command": "draining", "host": "i-1"}   the job drains the host
     *   {"command": "drained", "host": "i-1"}    the job has drained the host; the source may remove it
     *   {"command": "self-test"}                 check access and permissions
     * Return ELASTICRUN_OK for an unknown command. */
    int32_t (*command)(void *instance, const uint8_t *command, size_t command_len, uint64_t deadline_ms,
                       elasticrun_buffer *answer);
} elasticrun_plugin;

/* A code other than ELASTICRUN_OK comes with an answer {"message": "...", "retry_after_ms": 5000}, or with
 * an empty one. `answer` is empty at the call. Its content is passed to free afterwards. */

#ifdef __cplusplus
}
#endif

#endif
