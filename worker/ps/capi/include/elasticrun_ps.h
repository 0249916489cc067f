/* The parameter server of elasticrun for C: docs/parameter-server.md.
 *
 * Functions that return int return ERPS_OK or another status. Then erps_last_error() says why, in one line. No function ends the process.
 * All functions may be called by any thread, and several at once, unless they free what another one uses.
 *
 * Who owns what: erps_*_new and erps_start make objects that the program frees with erps_*_free. Arrays belong to the program. A request
 * does not copy them: see erps_request_options.
 */
#ifndef ELASTICRUN_PS_H
#define ELASTICRUN_PS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Status codes. */
enum {
  ERPS_OK = 0,
  ERPS_INVALID = 1,     /* an argument is NULL or wrong */
  ERPS_CONFIG = 2,      /* a variable is missing or wrong; an app or customer is there already; no such node */
  ERPS_START = 3,       /* not all nodes came in time; the scheduler cannot be reached, cannot listen, or has another key */
  ERPS_NODE_LOST = 4,   /* a node is dead */
  ERPS_TIMEOUT = 5,     /* an answer or a barrier was not there in time */
  ERPS_BAD_REQUEST = 6, /* keys, lens and values do not belong together */
  ERPS_REFUSED = 7,     /* a server refused the request */
  ERPS_FINALIZED = 8,   /* the node has been finalized */
  ERPS_OTHER = 9,       /* a system call failed, or a peer sent something wrong */
  ERPS_PANIC = 10       /* a bug in this library */
};

/* Types of values. */
enum {
  ERPS_U8 = 1, ERPS_I8 = 2, ERPS_U16 = 3, ERPS_I16 = 4, ERPS_U32 = 5, ERPS_I32 = 6, ERPS_U64 = 7, ERPS_I64 = 8,
  ERPS_F16 = 9, ERPS_BF16 = 10, ERPS_F32 = 11, ERPS_F64 = 12
};

/* Groups of nodes. A sum of them is a group too. The scheduler has the id 1, a server 8 + 2 rank, a worker 9 + 2 rank. */
enum { ERPS_SCHEDULER = 1, ERPS_SERVERS = 2, ERPS_WORKERS = 4, ERPS_ALL = 7 };

/* The message of the last function that failed on this thread. Valid until the next one fails there. Never NULL. */
const char *erps_last_error(void);

/* ---- Nodes ---- */

typedef struct erps_node erps_node;

/* Starts the node that the variables DMLC_* and PS_* describe, and waits until all nodes are there, in a barrier if this is not 0. Sets
 * *node, which the program frees. */
int erps_start(int barrier, erps_node **node);

/* Ends the node, after a barrier of all nodes if this is not 0. That one has no limit in time. It ends also if a node is lost. */
int erps_finalize(const erps_node *node, int barrier);

/* Frees a node, after everything that was made from it. Ends it, without a barrier, if it is not finalized. NULL is ignored. */
void erps_node_free(erps_node *node);

/* About this node and the job. 0 for NULL. The role is the mask of the group of the role. */
uint32_t erps_my_id(const erps_node *node);
uint32_t erps_my_rank(const erps_node *node);
uint32_t erps_my_role(const erps_node *node);
uint32_t erps_num_servers(const erps_node *node);
uint32_t erps_num_workers(const erps_node *node);

/* 1 if this process has taken the place of a dead one, under its id: ELASTICRUN_PS_REPLACE_TIMEOUT. Else 0. */
uint32_t erps_is_recovery(const erps_node *node);

/* Waits until all nodes of a group are here. */
int erps_barrier(const erps_node *node, uint32_t group);

/* Writes the ids of dead nodes to an array of the program with space for *count. Sets *count to the number of dead nodes. */
int erps_dead_nodes(const erps_node *node, uint32_t *ids, size_t *count);

/* Sets *first and *last to the smallest and the largest key of the server with this rank. */
int erps_key_range(const erps_node *node, uint32_t server, uint64_t *first, uint64_t *last);

/* Saves the values of all servers of an elastic job in ELASTICRUN_PS_SNAPSHOTS, and waits until they are saved. Sets *number to the number of
 * the snapshot. It has all pushes that were acknowledged before the call. Only workers call this. */
int erps_snapshot(const erps_node *node, uint64_t *number);

/* Has call(user) called at the end of erps_finalize. */
int erps_on_exit(const erps_node *node, void (*call)(void *user), void *user);

/* ---- Workers ---- */

typedef struct erps_worker erps_worker;
typedef struct erps_pulled erps_pulled;

/* Keys first to before end, positions in the list of keys, go to the server with this rank. */
typedef struct erps_part {
  uint32_t server;
  size_t first;
  size_t end;
} erps_part;

/* The options of a request. All 0 is a default; so is NULL.
 *
 * Arrays of a request are not copied. With a release function, release(owner) is called once, on any thread, when the library uses none of
 * them any more, also if the function fails. Without one, the program keeps them until the request is completed; if it failed, until the
 * node is freed. Until the request is completed, nothing writes keys, lens and values, and nothing uses the memory for a result. The
 * struct itself and its parts are read during the call only. */
typedef struct erps_request_options {
  int32_t cmd;      /* a number for the handler */
  int32_t priority; /* requests of higher priority overtake others that wait to be sent */
  /* Is called once when the request is completed, unless the function that makes the request fails; perhaps before that returns. It is
   * called on a thread of the node, or one that waits, and must not wait for other requests. error is valid during the call. */
  void (*callback)(int status, const char *error, void *user);
  void *user;
  void (*release)(void *owner);
  void *owner;
  const erps_part *parts; /* how the keys are cut, if not by the ranges of the servers: each key in one part, one part for a server */
  size_t num_parts;
} erps_request_options;

/* Creates a customer of an app, whose values have one of the types above. Sets *worker, which the program frees. */
int erps_worker_new(const erps_node *node, int32_t type, uint32_t app, uint32_t customer, erps_worker **worker);

/* Frees a worker. Its requests go on, and are forgotten. NULL is ignored. */
void erps_worker_free(erps_worker *worker);

/* Adds values to those of the servers. Keys are strictly ascending. Each key has num_values / num_keys values, or with lens as many as its
 * element there says; lens is NULL or has num_keys elements. Returns at once, and sets *timestamp, the number of the request. */
int erps_push(const erps_worker *worker, const uint64_t *keys, size_t num_keys, const void *values, size_t num_values,
              const uint32_t *lens, const erps_request_options *options, uint64_t *timestamp);

/* Reads values. The result is received into values, which has space for num_values: each key has num_values / num_keys, or as lens says. If
 * values is NULL, num_values and lens are ignored, the servers know how many there are, and erps_take gives them. Returns at once. */
int erps_pull(const erps_worker *worker, const uint64_t *keys, size_t num_keys, void *values, size_t num_values,
              const uint32_t *lens, const erps_request_options *options, uint64_t *timestamp);

/* Adds values and reads the sums, as many, into other memory. Returns at once. */
int erps_push_pull(const erps_worker *worker, const uint64_t *keys, size_t num_keys, const void *values, size_t num_values,
                   const uint32_t *lens, void *sums, const erps_request_options *options, uint64_t *timestamp);

/* Waits until a request is completed. A negative number of seconds is the request timeout. A request that is not completed in time is
 * over. */
int erps_wait(const erps_worker *worker, uint64_t timestamp, double seconds);

/* 1 if a request is completed, with an error or not, else 0. */
int erps_is_done(const erps_worker *worker, uint64_t timestamp);

/* Takes the result of a completed pull, once. Sets *pulled, which the program frees. If pulled is NULL, the result is dropped: what
 * erps_pull and erps_push_pull keep for a request is freed by this, or with the worker. */
int erps_take(const erps_worker *worker, uint64_t timestamp, erps_pulled **pulled);

/* Sets *values to the values that erps_pull without memory has got, and *num_bytes to their size. *num_lens is 0 if all keys have equally
 * many, else the number of keys; then *lens says how many each has. The arrays are freed with the result. */
int erps_pulled_get(const erps_pulled *pulled, const void **values, size_t *num_bytes, const uint32_t **lens, size_t *num_lens);

/* Frees a result. NULL is ignored. */
void erps_pulled_free(erps_pulled *pulled);

/* ---- Servers ---- */

typedef struct erps_server erps_server;
typedef struct erps_request erps_request;

typedef struct erps_meta {
  int32_t cmd;
  int32_t push; /* not 0 if values are pushed */
  int32_t pull; /* not 0 if values are pulled */
  uint32_t sender;
  uint32_t customer;
  uint64_t timestamp;
} erps_meta;

/* Keys and values of a request. All arrays are valid during the call of the handler. */
typedef struct erps_pairs {
  const uint64_t *keys; /* strictly ascending */
  size_t num_keys;
  const void *values; /* pushed values, key by key */
  size_t num_values;
  const uint32_t *lens;     /* how many values each key has; NULL if all have equally many */
  const uint32_t *expected; /* how many values a pull expects for each key; NULL if all equally many, or it does not know */
  int64_t expected_per_key; /* how many it expects for each, if expected is NULL; -1 if it does not know, or says it there */
} erps_pairs;

/* Handles a request. It owns the request, and answers it once with erps_respond or erps_refuse, now or later, on any thread. It is called
 * on threads of the node, for requests of several workers at once. */
typedef void (*erps_handler)(erps_request *request, const erps_meta *meta, const erps_pairs *pairs, void *user);

/* Creates an app. Without a handler (NULL), pushed values are added up. Requests that have come already are handled before this returns. Sets
 * *server, which the program frees. */
int erps_server_new(const erps_node *node, int32_t type, uint32_t app, erps_handler handler, void *user, erps_server **server);

/* Takes an app away and frees it. Later requests wait for another one with its number. A handler may still run. NULL is ignored. */
void erps_server_free(erps_server *server);

/* Answers a request and frees it. If this fails, the request is answered with the error. A push is answered without values. lens, with
 * num_lens elements, is needed only if the worker does not know how many values each key has, and they differ. lens is copied. values is
 * copied if release is NULL. Otherwise it stays, unchanged, until release(owner) is called, once, on any thread, also if this fails. */
int erps_respond(erps_request *request, const void *values, size_t num_values, const uint32_t *lens, size_t num_lens,
                 void (*release)(void *owner), void *owner);

/* Answers a request with an error and frees it. The reason is copied. */
int erps_refuse(erps_request *request, const char *reason);

/* ---- Simple requests: a number and some bytes ---- */

typedef struct erps_simple erps_simple;
typedef struct erps_simple_request erps_simple_request;

/* A simple request or an answer. The body is valid during the call. */
typedef struct erps_message {
  int32_t head;
  uint32_t sender;
  uint64_t timestamp;
  const void *body;
  size_t num_bytes;
} erps_message;

/* Creates an app. on_request owns the request, and answers it once with erps_simple_respond or erps_simple_refuse, now or later; if it is NULL,
 * requests are answered with nothing. on_response, if it is not NULL, is called for each answer, before the request is completed. Both are
 * called on threads of the node, perhaps several at once. Sets *simple, which the program frees; the app serves until the node ends. */
int erps_simple_new(const erps_node *node, uint32_t app,
                    void (*on_request)(erps_simple_request *request, const erps_message *message, void *user),
                    void (*on_response)(const erps_message *message, void *user), void *user, erps_simple **simple);

/* Frees an app; its handlers are called until the node ends. NULL is ignored. */
void erps_simple_free(erps_simple *simple);

/* Sends a request to a group (1 to 7) or the node with an id. The body is copied. Returns at once, and sets *timestamp. */
int erps_simple_request_to(const erps_simple *simple, int32_t head, const void *body, size_t num_bytes, uint32_t to,
                           uint64_t *timestamp);

/* Waits until all have answered, for the request timeout. */
int erps_simple_wait(const erps_simple *simple, uint64_t timestamp);

/* Answers a request and frees it. The body is copied. */
int erps_simple_respond(erps_simple_request *request, const void *body, size_t num_bytes);

/* Answers a request with an error and frees it. The reason is copied. */
int erps_simple_refuse(erps_simple_request *request, const char *reason);

#ifdef __cplusplus
}
#endif

#endif
