// A node of ps-lite: bench_ps compiles this program against the build of ps-lite in PS_LITE_DIR.
//
// DMLC_ROLE says which node it is. The worker prints "ready" and how it does a push-pull. Then it reads commands, "operation size
// window millis", and answers each with "count seconds median_us", as the other clients of the benchmark do.
//
// Tested with the ps-lite of byteps 0.2.5 (ByteDance's fork). The API of dmlc's own differs in push-pulls, and that of later
// forks in the start. The code for these differences has been compiled and not run.

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "ps/ps.h"

namespace {

using Clock = std::chrono::steady_clock;
using Keys = ps::SArray<ps::Key>;
using Values = ps::SArray<float>;

// The cmds of requests: values that are only acknowledged, added up, and added up with one value for a key.
enum Cmd { kAcknowledge, kSum, kSparse };

// Where answers go: ps-lite itself may print to stdout.
FILE* answers;

double Seconds(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

// Without ZPushPull, a request is a push or a pull, and KVMeta has no field `pull`. The argument 0 prefers the first overload.

template <typename Meta>
auto IsPull(const Meta& meta, int) -> decltype(bool(meta.pull)) {
  return meta.pull;
}

template <typename Meta>
bool IsPull(const Meta& meta, long) {
  return !meta.push;
}

template <typename Worker>
auto PushPull(Worker& kv, const Keys& keys, const Values& values, Values* answer, int cmd, int)
    -> decltype(kv.ZPushPull(keys, values, answer, nullptr, cmd)) {
  return kv.ZPushPull(keys, values, answer, nullptr, cmd);
}

// A server handles the requests of a worker in order, so the pull has the values after the push. Nothing waits between the two.
template <typename Worker>
int PushPull(Worker& kv, const Keys& keys, const Values& values, Values* answer, int cmd, long) {
  kv.ZPush(keys, values, {}, cmd);
  return kv.ZPull(keys, answer, nullptr, cmd);
}

template <typename Worker>
auto PushPullName(Worker& kv, int) -> decltype(kv.ZPushPull(Keys(), Values(), nullptr), "ZPushPull") {
  return "ZPushPull";
}

template <typename Worker>
const char* PushPullName(Worker&, long) {
  return "ZPush, ZPull";
}

void Start(const std::string& role) {
#ifdef PS_LITE_HAS_START_PS
  const auto node = role == "worker"   ? ps::Node::WORKER
                    : role == "server" ? ps::Node::SERVER
                                       : ps::Node::SCHEDULER;
  ps::StartPS(0, node, -1, true);
#else
  (void)role;
  // A customer, or in old versions no name of the program.
  ps::Start(0);
#endif
}

// With DMLC_LOCAL a node listens at /tmp/PORT. All its peers are connected, so the file is of no more use.
void UnlinkSocket() {
  const char* local = std::getenv("DMLC_LOCAL");
  if (local == nullptr || std::strcmp(local, "1") != 0) return;
  unlink(("/tmp/" + std::to_string(ps::Postoffice::Get()->van()->my_node().port)).c_str());
}

class Server {
 public:
  void operator()(const ps::KVMeta& meta, const ps::KVPairs<float>& pairs, ps::KVServer<float>* server) {
    if (!used_) UnlinkSocket();
    used_ = true;
    if (meta.cmd == kSparse) return sparse_(meta, pairs, server);
    ps::KVPairs<float> answer;
    const ps::Key key = pairs.keys[0];
    if (IsPull(meta, 0)) answer.keys = pairs.keys;
    if (meta.cmd == kSum) {
      std::vector<float>& sum = sums_[key];
      if (meta.push) {
        sum.resize(pairs.vals.size());
        const float* values = pairs.vals.data();
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
      }
      // A copy: a later push must not change an answer that is on its way.
      if (IsPull(meta, 0)) answer.vals = Copy(sum);
    } else if (IsPull(meta, 0)) {
      // The key is the size of its values.
      const size_t size = key / sizeof(float);
      if (zeros_.size() < size) zeros_ = Values(std::vector<float>(size));
      answer.vals = zeros_.segment(0, size);
    }
    server->Response(meta, answer);
  }

 private:
  static Values Copy(const std::vector<float>& values) {
    float* copy = new float[values.size()];
    std::copy(values.begin(), values.end(), copy);
    return Values(copy, values.size(), true);
  }

  bool used_ = false;
  Values zeros_;
  std::unordered_map<ps::Key, std::vector<float>> sums_;
  ps::KVServerDefaultHandle<float> sparse_;
};

// The same keys as those of the other worker: all of the store, or a random tenth.
std::vector<ps::Key> SparseKeys(size_t size, bool some) {
  uint64_t state = 7;
  ps::Key key = ps::Key(1) << 32;
  std::vector<ps::Key> keys(size);
  for (ps::Key& each : keys) {
    state = state * 6364136223846793005u + 1;
    key += some ? 3 * (1 + (state >> 33) % 19) : 3;
    each = key;
  }
  return keys;
}

struct Request {
  Clock::time_point begun;
  int timestamp;
};

std::string Measure(ps::KVWorker<float>& kv, const std::string& name, size_t size, size_t window, double limit) {
  const size_t dash = name.find('-');
  const std::string kind = dash == std::string::npos ? "" : name.substr(0, dash);
  const std::string operation = dash == std::string::npos ? name : name.substr(dash + 1);
  const bool sparse = kind == "sparse" || kind == "some";
  const int cmd = sparse ? kSparse : kind == "sum" ? kSum : kAcknowledge;
  // A key for each size: a key has a fixed number of values.
  const Keys keys(sparse ? SparseKeys(size, kind == "some") : std::vector<ps::Key>{size});
  const size_t count = sparse ? size : size / sizeof(float);
  const Values values(std::vector<float>(count, 1.0f));
  std::vector<Values> buffers(operation == "push" ? 0 : window);
  for (Values& buffer : buffers) buffer.resize(count);

  std::deque<Request> in_flight;
  std::vector<double> times;
  const auto finish = [&] {
    kv.Wait(in_flight.front().timestamp);
    times.push_back(Seconds(in_flight.front().begun) * 1e6);
    in_flight.pop_front();
  };
  const auto start = Clock::now();
  size_t begun = 0;
  for (; begun < window || Seconds(start) < limit; ++begun) {
    if (in_flight.size() == window) finish();
    Request request{Clock::now(), 0};
    if (operation == "push") {
      request.timestamp = kv.ZPush(keys, values, {}, cmd);
    } else if (operation == "pull") {
      request.timestamp = kv.ZPull(keys, &buffers[begun % window], nullptr, cmd);
    } else {
      request.timestamp = PushPull(kv, keys, values, &buffers[begun % window], cmd, 0);
    }
    in_flight.push_back(request);
  }
  while (!in_flight.empty()) finish();
  const double seconds = Seconds(start);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  std::ostringstream answer;
  answer.precision(9);
  answer << begun << ' ' << seconds << ' ' << times[times.size() / 2];
  return answer.str();
}

void Answer(const std::string& line) {
  std::fprintf(answers, "%s\n", line.c_str());
  std::fflush(answers);
}

void Work() {
  auto* kv = new ps::KVWorker<float>(0, 0);
  // Connects all that talk to each other.
  Measure(*kv, "push", sizeof(float), 1, 0);
  UnlinkSocket();
  Answer(std::string("ready ") + PushPullName(*kv, 0));
  std::string operation;
  size_t size, window;
  double millis;
  while (std::cin >> operation >> size >> window >> millis) {
    Answer(Measure(*kv, operation, size, window, millis / 1e3));
  }
}

}  // namespace

int main() {
  // The benchmark stops nodes that wait for their turn, and a stopped process cannot see the end of stdin.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  answers = fdopen(dup(STDOUT_FILENO), "w");
  dup2(STDERR_FILENO, STDOUT_FILENO);
  const char* variable = std::getenv("DMLC_ROLE");
  const std::string role = variable == nullptr ? "" : variable;
  Start(role);
  if (role == "worker") {
    Work();
  } else {
    if (role == "server") (new ps::KVServer<float>(0))->set_request_handle(Server());
    if (role == "scheduler") UnlinkSocket();
    // Until it is killed.
    std::string line;
    while (std::getline(std::cin, line)) continue;
  }
  // Without the barriers of Finalize: the other nodes end too.
  _exit(0);
}
