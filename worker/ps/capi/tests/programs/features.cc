/* What else the C++ front offers: shared arrays, lens, callbacks, handles, slicers, simple requests, ranges, errors. */
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ps/ps.h"

#define EXPECT(condition)                                              \
  do {                                                                 \
    if (!(condition)) {                                                \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
      std::exit(1);                                                    \
    }                                                                  \
  } while (0)

namespace {

using ps::Key;
using ps::SArray;

/* Keys on both servers. */
const std::vector<Key> kKeys = {1, 5, ps::kMaxKey / 2 + 1, ps::kMaxKey};

template <typename Call>
void Throws(int code, const std::string& part, Call call) {
  try {
    call();
  } catch (const ps::Error& error) {
    const std::string text = error.what();
    if (error.code() == code && text.find(part) != std::string::npos) return;
    std::printf("%d %s\n", error.code(), error.what());
  }
  std::printf("expected %d %s\n", code, part.c_str());
  std::exit(1);
}

void Arrays() {
  SArray<int> all = {1, 2, 3, 4};
  SArray<int> part = all.segment(1, 3);
  EXPECT(part.data() == all.data() + 1 && part.size() == 2 && part[1] == 3);
  part.push_back(9);
  EXPECT(all[3] == 4 && part.back() == 9);
  all.append(SArray<int>({7}));
  EXPECT(all.size() == 5 && all.back() == 7);
  SArray<char> bytes(all);
  EXPECT(bytes.size() == 20 && static_cast<void*>(bytes.data()) == all.data());
  auto shared = std::make_shared<std::vector<int>>(3, 8);
  SArray<int> view(shared);
  EXPECT(view.data() == shared->data() && view.size() == 3);
  EXPECT(ps::FindRange(SArray<Key>({1, 4, 9}), Key(2), Key(9)).size() == 1);
}

void Serve() {
  // Multiplies what it has by what is pushed, and may refuse or answer later.
  auto* server = new ps::KVServer<double>(1);
  auto store = std::make_shared<std::map<Key, double>>();
  auto waiting = std::make_shared<std::vector<ps::KVMeta>>();
  server->set_request_handle(
      [store, waiting](const ps::KVMeta& meta, const ps::KVPairs<double>& data, ps::KVServer<double>* kv) {
        if (meta.cmd == 1) throw std::runtime_error("cmd 1 is not known");
        if (meta.cmd == 2) return;
        if (meta.cmd == 3) {
          waiting->push_back(meta);
          if (static_cast<int>(waiting->size()) < ps::NumWorkers()) return;
          for (const ps::KVMeta& each : *waiting) kv->Response(each);
          waiting->clear();
          return;
        }
        ps::KVPairs<double> answer;
        for (std::size_t i = 0; i < data.keys.size(); ++i) {
          double& value = store->emplace(data.keys[i], 1).first->second;
          if (meta.push) value *= data.vals[i];
          if (meta.pull) answer.vals.push_back(value);
        }
        kv->Response(meta, answer);
      });
  // The default handle by hand, with mixed lens.
  auto* sums = new ps::KVServer<float>(2);
  auto sum = std::make_shared<ps::KVServerDefaultHandle<float>>();
  sums->set_request_handle([sum](const ps::KVMeta& meta, const ps::KVPairs<float>& data, ps::KVServer<float>* kv) {
    (*sum)(meta, data, kv);
  });
  ps::RegisterExitCallback([server, sums]() {
    delete server;
    delete sums;
  });
}

void Work() {
  ps::KVWorker<double> kv(1, 0);
  EXPECT(kv.get_customer()->app_id() == 1);
  kv.Wait(kv.Push(kKeys, {2, 2, 2, 2}, {}, 3));
  Throws(ERPS_REFUSED, "refused the request: cmd 1 is not known", [&] { kv.Wait(kv.Push(kKeys, {1, 1, 1, 1}, {}, 1)); });
  Throws(ERPS_REFUSED, "the handler has not answered", [&] { kv.Wait(kv.Push(kKeys, {1, 1, 1, 1}, {}, 2)); });
  const std::string low = std::to_string(ps::internal::Widen(1));
  Throws(ERPS_BAD_REQUEST, "key " + low + " at position 1 is less than the key before it", [&] { kv.Push({2, 1}, {1, 1}); });
  Throws(ERPS_BAD_REQUEST, "1 lens for 2 keys", [&] { kv.Push({1, 2}, {1}, {1}); });
  Throws(ERPS_BAD_REQUEST, "request 1000000 has not begun", [&] { kv.Wait(1000000); });
  Throws(ERPS_CONFIG, "app 1 with customer 0 exists in this process already", [] { ps::KVWorker<double> other(1, 0); });
  // An error of a request with a callback.
  int failed = 0;
  kv.set_error_handle([&failed](int, const ps::Error& error) { failed = error.code(); });
  Throws(ERPS_REFUSED, "cmd 1", [&] { kv.Wait(kv.Push(kKeys, {1, 1, 1, 1}, {}, 1, [] { std::exit(1); })); });
  EXPECT(failed == ERPS_REFUSED);

  // Shared arrays, received in place, with a callback that sees the values.
  ps::KVWorker<float> sums(2, ps::MyRank());
  SArray<Key> keys(kKeys);
  SArray<int> lens = {1, 2, 0, 3};
  SArray<float> vals = {1, 2, 3, 4, 5, 6};
  sums.Wait(sums.ZPush(keys, vals, lens));
  ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
  SArray<float> in_place(6);
  float* place = in_place.data();
  float seen = 0;
  sums.Wait(sums.ZPull(keys, &in_place, &lens, 0, [&] { seen = in_place[5]; }));
  const float workers = static_cast<float>(ps::NumWorkers());
  EXPECT(in_place.data() == place && in_place[0] == workers && seen == 6 * workers);
  SArray<float> found;
  SArray<int> found_lens;
  sums.Wait(sums.ZPull(keys, &found, &found_lens, 0, [&] { seen = found[1]; }));
  EXPECT(seen == 2 * workers && found.size() == 6);
  EXPECT(std::equal(lens.begin(), lens.end(), found_lens.begin(), found_lens.end()));
  std::vector<float> copied;
  std::vector<int> copied_lens;
  sums.Wait(sums.Pull(kKeys, &copied, &copied_lens));
  EXPECT(copied.size() == 6 && copied_lens == std::vector<int>({1, 2, 0, 3}));
  ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
  SArray<float> outs;
  sums.Wait(sums.ZPushPull(keys, vals, &outs, &lens));
  EXPECT(outs.size() == 6 && outs[5] > 6 * workers);

  // All keys to the last server, which has not seen them.
  sums.set_slicer([](const ps::KVPairs<float>& send, const std::vector<ps::Range>& ranges,
                     std::vector<std::pair<bool, ps::KVPairs<float>>>* sliced) {
    sliced->resize(ranges.size());
    sliced->back().first = true;
    sliced->back().second.keys = send.keys.segment(0, send.keys.size());
  });
  std::vector<float> fresh(2);
  sums.Wait(sums.Pull({100, 200}, &fresh));
  EXPECT(fresh == std::vector<float>({0, 0}));
  sums.set_slicer([](const ps::KVPairs<float>&, const std::vector<ps::Range>& ranges,
                     std::vector<std::pair<bool, ps::KVPairs<float>>>* sliced) {
    sliced->resize(ranges.size());
    sliced->back().first = true;
    sliced->back().second.keys = SArray<Key>({100, 300});
  });
  Throws(ERPS_BAD_REQUEST, "the slicer gives server 1 keys that are no run", [&] { sums.Pull({100, 200, 300}, &fresh); });
  const int head = kv.Request(7, "from a worker", ps::kServerGroup);
  EXPECT(head < 0);
  kv.Wait(head);
}

}  // namespace

int main() {
  Arrays();
  ps::StartAsync(0);
  Throws(ERPS_INVALID, "expected a sum of 1, 2 and 4", [] { ps::Postoffice::Get()->Barrier(0, 9); });
  const auto& ranges = ps::Postoffice::Get()->GetServerKeyRanges();
  EXPECT(ranges.size() == 2 && ranges[0].end() == ps::kMaxKey / 2 + 1 && ranges[1].end() == ps::kMaxKey);
  EXPECT(ps::Postoffice::Get()->GetNodeIDs(ps::kScheduler + ps::kServerGroup + ps::kWorkerGroup) ==
         std::vector<int>({1, 8, 9, 10, 11}));
  EXPECT(ps::Postoffice::Get()->GetDeadNodes().empty());
  EXPECT(ps::Postoffice::IDtoRank(ps::Postoffice::Get()->my_id()) == ps::MyRank());

  ps::SimpleApp app(9);
  std::atomic<int> answers{0};
  app.set_request_handle([](const ps::SimpleData& data, ps::SimpleApp* self) { self->Response(data, data.body + "!"); });
  app.set_response_handle([&answers](const ps::SimpleData& data, ps::SimpleApp*) {
    if (data.head == 3 && data.body == "body!") ++answers;
  });
  ps::Postoffice::Get()->Barrier(0, ps::kScheduler + ps::kServerGroup + ps::kWorkerGroup);
  if (ps::IsScheduler()) {
    for (int i = 0; i < 10; ++i) app.Wait(app.Request(3, "body", ps::kServerGroup + ps::kWorkerGroup));
    EXPECT(answers == 40);
  }
  if (ps::IsServer()) Serve();
  if (ps::IsWorker()) Work();
  std::printf("all\n");
  ps::Finalize(0, true);
}
