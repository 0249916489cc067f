/* Pushes and pulls with the numbers of ps-lite's own test: 10,000 keys, 50 pushes with at most 10 in flight, a pull and 50 push-pulls. */
#include <cmath>
#include <cstdio>
#include <deque>
#include <vector>

#include "ps/ps.h"

namespace {

constexpr int kKeys = 10000;

void StartServer() {
  if (!ps::IsServer()) return;
  auto* server = new ps::KVServer<float>(0);
  server->set_request_handle(ps::KVServerDefaultHandle<float>());
  ps::RegisterExitCallback([server]() { delete server; });
}

int RunWorker() {
  if (!ps::IsWorker()) return 0;
  ps::KVWorker<float> kv(0, 0);
  std::vector<ps::Key> keys(kKeys);
  std::vector<float> vals(kKeys);
  for (int i = 0; i < kKeys; ++i) {
    keys[i] = ps::kMaxKey / kKeys * i + i % 7;
    vals[i] = static_cast<float>(i % 100) * 0.5f;
  }
  int called = 0;
  std::deque<int> in_flight;
  for (int i = 0; i < 50; ++i) {
    // The callback is called before Wait returns, so the count needs no lock.
    in_flight.push_back(i % 2 == 0 ? kv.Push(keys, vals) : kv.Push(keys, vals, {}, 0, [&called]() { ++called; }));
    if (in_flight.size() == 10) {
      kv.Wait(in_flight.front());
      in_flight.pop_front();
    }
  }
  for (int timestamp : in_flight) kv.Wait(timestamp);
  std::vector<float> found;
  kv.Wait(kv.Pull(keys, &found));
  if (found.size() != keys.size()) return std::printf("%zu values\n", found.size()), 1;
  for (int i = 0; i < 50; ++i) kv.Wait(kv.PushPull(keys, vals, &found));
  ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
  kv.Wait(kv.Pull(keys, &found));
  double error = 0;
  for (int i = 0; i < kKeys; ++i) error += std::fabs(found[i] - vals[i] * 100 * static_cast<float>(ps::NumWorkers()));
  std::printf("error %g, called %d\n", error, called);
  return error == 0 && called == 25 ? 0 : 1;
}

}  // namespace

int main() {
  ps::Start(0);
  StartServer();
  const int failed = RunWorker();
  ps::Finalize(0, true);
  return failed;
}
