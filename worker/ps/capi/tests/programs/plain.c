/* A program in C: pushes, pulls, a handler, simple requests, errors. */
#include <elasticrun_ps.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                           \
  do {                                                                              \
    if (!(condition)) {                                                             \
      printf("%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, erps_last_error()); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

static int released;
static int owner;

static void release(void *owner) {
  ++*(int *)owner;
}

/* Answers a pull with cmd + key. */
static void handle(erps_request *request, const erps_meta *meta, const erps_pairs *pairs, void *user) {
  int64_t values[8];
  EXPECT(user == &released && meta->pull && !meta->push && pairs->num_keys <= 8 && pairs->expected_per_key == 1);
  if (meta->cmd < 0) {
    EXPECT(erps_refuse(request, "cmd is negative") == ERPS_OK);
    return;
  }
  for (size_t i = 0; i < pairs->num_keys; ++i) values[i] = meta->cmd + (int64_t)(pairs->keys[i] % 1000);
  EXPECT(erps_respond(request, values, pairs->num_keys, NULL, 0, NULL, NULL) == ERPS_OK);
}

static void completed(int status, const char *error, void *user) {
  EXPECT(error != NULL);
  *(int *)user = status;
}

static void work(erps_node *node) {
  const uint64_t keys[] = {1, 2, UINT64_MAX};
  const float values[] = {1, 2, 3, 4, 5, 6};
  float sums[6] = {0};
  uint64_t timestamp = 0;
  erps_worker *kv = NULL;
  int status = -1;
  erps_request_options options = {0};
  EXPECT(erps_worker_new(node, ERPS_F32, 0, 0, &kv) == ERPS_OK);
  options.callback = completed;
  options.user = &status;
  options.release = release;
  options.owner = &owner;
  EXPECT(erps_push(kv, keys, 3, values, 6, NULL, &options, &timestamp) == ERPS_OK);
  EXPECT(erps_wait(kv, timestamp, -1) == ERPS_OK && erps_is_done(kv, timestamp));
  EXPECT(status == ERPS_OK);
  EXPECT(erps_barrier(node, ERPS_WORKERS) == ERPS_OK);
  EXPECT(erps_pull(kv, keys, 3, sums, 6, NULL, NULL, &timestamp) == ERPS_OK);
  EXPECT(erps_wait(kv, timestamp, 60) == ERPS_OK && erps_take(kv, timestamp, NULL) == ERPS_OK);
  for (int i = 0; i < 6; ++i) EXPECT(sums[i] == values[i] * (float)erps_num_workers(node));

  /* The servers know how many values there are. */
  erps_pulled *pulled = NULL;
  const void *found = NULL;
  const uint32_t *lens = NULL;
  size_t num_bytes = 0, num_lens = 1;
  EXPECT(erps_pull(kv, keys, 3, NULL, 0, NULL, NULL, &timestamp) == ERPS_OK);
  EXPECT(erps_wait(kv, timestamp, -1) == ERPS_OK && erps_take(kv, timestamp, &pulled) == ERPS_OK);
  EXPECT(erps_pulled_get(pulled, &found, &num_bytes, &lens, &num_lens) == ERPS_OK);
  EXPECT(num_bytes == sizeof sums && num_lens == 0 && memcmp(found, sums, num_bytes) == 0);
  erps_pulled_free(pulled);
  EXPECT(erps_take(kv, timestamp, &pulled) == ERPS_INVALID);

  /* Wrong requests: nothing is called, and memory is released all the same. */
  status = -1;
  EXPECT(erps_push(kv, keys, 3, values, 5, NULL, &options, &timestamp) == ERPS_BAD_REQUEST && status == -1);
  EXPECT(strcmp(erps_last_error(), "5 values cannot be divided evenly among 3 keys: give lens") == 0);
  EXPECT(erps_push(kv, NULL, 3, values, 6, NULL, NULL, &timestamp) == ERPS_INVALID);
  EXPECT(strcmp(erps_last_error(), "keys is NULL") == 0);
  EXPECT(erps_worker_new(node, 99, 0, 5, &kv) == ERPS_INVALID);
  EXPECT(erps_worker_new(NULL, ERPS_F32, 0, 5, &kv) == ERPS_INVALID);
  EXPECT(erps_barrier(node, 8) == ERPS_INVALID);

  erps_worker *handled = NULL;
  int64_t answers[3];
  EXPECT(erps_worker_new(node, ERPS_I64, 1, 0, &handled) == ERPS_OK);
  memset(&options, 0, sizeof options);
  options.cmd = 40;
  EXPECT(erps_pull(handled, keys, 3, answers, 3, NULL, &options, &timestamp) == ERPS_OK);
  EXPECT(erps_wait(handled, timestamp, -1) == ERPS_OK && answers[1] == 42);
  options.cmd = -1;
  EXPECT(erps_pull(handled, keys, 3, answers, 3, NULL, &options, &timestamp) == ERPS_OK);
  EXPECT(erps_wait(handled, timestamp, -1) == ERPS_REFUSED && strstr(erps_last_error(), "cmd is negative") != NULL);
  erps_worker_free(handled);
  erps_worker_free(kv);
}

int main(void) {
  erps_node *node = NULL;
  erps_server *sums = NULL, *handled = NULL;
  erps_simple *simple = NULL;
  uint64_t timestamp = 0;
  int is_worker = 0;
  EXPECT(erps_start(1, &node) == ERPS_OK);
  is_worker = erps_my_role(node) == ERPS_WORKERS;
  EXPECT(erps_simple_new(node, 5, NULL, NULL, NULL, &simple) == ERPS_OK);
  if (erps_my_role(node) == ERPS_SERVERS) {
    EXPECT(erps_server_new(node, ERPS_F32, 0, NULL, NULL, &sums) == ERPS_OK);
    EXPECT(erps_server_new(node, ERPS_I64, 1, handle, &released, &handled) == ERPS_OK);
    EXPECT(erps_server_new(node, ERPS_I64, 1, handle, &released, &handled) == ERPS_CONFIG);
  } else if (erps_my_role(node) == ERPS_WORKERS) {
    work(node);
  } else {
    EXPECT(erps_simple_request_to(simple, 1, "x", 1, ERPS_ALL, &timestamp) == ERPS_OK);
    EXPECT(erps_simple_wait(simple, timestamp) == ERPS_OK);
    EXPECT(erps_simple_request_to(simple, 1, "x", 1, 0, &timestamp) == ERPS_INVALID);
  }
  EXPECT(erps_finalize(node, 1) == ERPS_OK);
  EXPECT(erps_barrier(node, ERPS_ALL) == ERPS_FINALIZED);
  erps_simple_free(simple);
  erps_server_free(sums);
  erps_server_free(handled);
  erps_node_free(node);
  erps_node_free(NULL);
  EXPECT(owner == (is_worker ? 2 : 0));
  printf("plain\n");
  return 0;
}
