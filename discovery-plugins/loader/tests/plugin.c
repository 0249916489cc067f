/* A plugin in C, against the header that plugin authors get. Each macro below makes it a bad one. */

#define _GNU_SOURCE /* memmem */
#include "elasticrun_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef MAGIC
#define MAGIC ELASTICRUN_PLUGIN_MAGIC
#endif
#ifndef MAJOR
#define MAJOR ELASTICRUN_PLUGIN_ABI_MAJOR
#endif
#ifndef MINOR
#define MINOR ELASTICRUN_PLUGIN_ABI_MINOR
#endif
#ifndef SIZE
#define SIZE sizeof(elasticrun_plugin)
#endif
#ifdef NO_WATCH
#define FLAGS 3
#endif
#ifndef FLAGS
#define FLAGS ELASTICRUN_PLUGIN_POLL
#endif
#ifndef FREE
#define FREE release
#endif
#ifndef CODE
#define CODE ELASTICRUN_OK
#endif
#ifndef NAME
#define NAME "c"
#endif
#ifndef SYMBOL
#define SYMBOL elasticrun_plugin_c
#endif

static const char MANIFEST[] =
#ifdef BAD_MANIFEST
    "{\"name\": ";
#else
    "{\"name\": \"" NAME "\", \"version\": \"0.1\", \"unknown\": [1, 2]}";
#endif

/* Buffers that were made and are not freed. */
static int made = 0;

static void give(elasticrun_buffer *answer, const char *text, size_t len)
{
    answer->data = malloc(len);
    memcpy(answer->data, text, len);
    answer->len = len;
    made++;
}

static int32_t create(const elasticrun_host *host, const uint8_t *config, size_t config_len,
                      void **instance, elasticrun_buffer *answer)
{
    if (host->size < sizeof(elasticrun_host) || host->abi_major != ELASTICRUN_PLUGIN_ABI_MAJOR) {
        return ELASTICRUN_BAD_CONFIG;
    }
    if (config_len == 2) {
        static const char why[] = "{\"message\": \"no options\", \"unknown\": 1}";
        give(answer, why, sizeof why - 1);
        return ELASTICRUN_BAD_CONFIG;
    }
    char *copy = malloc(config_len + 1);
    memcpy(copy, config, config_len);
    copy[config_len] = 0;
    *instance = copy;
    return ELASTICRUN_OK;
}

static int32_t poll(void *instance, uint64_t deadline_ms, elasticrun_buffer *answer)
{
#if defined(LARGE)
    answer->len = (4u << 20) + 1;
    answer->data = calloc(1, answer->len);
    made++;
#elif defined(BAD_TEXT)
    give(answer, "{\"hosts\": [{\"id\": \"\xff\"}]}", 24);
#elif defined(NO_DATA)
    answer->len = 8;
#elif defined(SILENT)
#else
    char text[512];
    int len = snprintf(text, sizeof text,
                       "{\"hosts\": [{\"id\": \"c-1\", \"labels\": {\"deadline\": \"%llu\", "
                       "\"made\": \"%d\"}}], \"complete\": false, \"unknown\": {}}",
                       (unsigned long long)deadline_ms, made);
    give(answer, text, (size_t)len);
#endif
    return CODE;
}

static int32_t destroy(void *instance)
{
    free(instance);
    return ELASTICRUN_OK;
}

static void release(elasticrun_buffer buffer)
{
    free(buffer.data);
    made--;
}

static void (*changed_of)(void *);
static void *changed_context;

static int32_t watch(void *instance, void (*changed)(void *), void *context, elasticrun_buffer *answer)
{
    changed_of = changed;
    changed_context = context;
    return ELASTICRUN_OK;
}

/* Says that something changed, and refuses a self-test with the words that it was asked in. */
static int32_t command(void *instance, const uint8_t *json, size_t len, uint64_t deadline_ms,
                       elasticrun_buffer *answer)
{
    if (changed_of) {
        changed_of(changed_context);
    }
    if (memmem(json, len, "self-test", 9) == NULL) {
        return ELASTICRUN_OK;
    }
    give(answer, (const char *)json, len);
    return ELASTICRUN_RETRYABLE;
}

#ifdef UNDEFINED
extern void nobody_has_this(void);
__attribute__((used)) static void (*const uses_it)(void) = nobody_has_this;
#endif

/* A table of a later minor version has more at its end. */
struct later {
    elasticrun_plugin table;
    void *more[4];
};

#ifdef LATER
const struct later SYMBOL = { {
#else
const elasticrun_plugin SYMBOL = {
#endif
    .magic = MAGIC,
    .abi_major = MAJOR,
    .abi_minor = MINOR,
    .size = SIZE,
    .flags = FLAGS,
    .manifest = (const uint8_t *)MANIFEST,
    .manifest_len = sizeof MANIFEST - 1,
    .create = create,
    .poll = poll,
    .destroy = destroy,
    .free = FREE,
    .command = command,
#ifndef NO_WATCH
    .watch = watch,
#endif
#ifdef LATER
}, { 0 } };
#else
};
#endif
