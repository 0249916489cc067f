/* The worker's side: push and pull. */
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ps/kv_pairs.h"
#include "ps/simple_app.h"

namespace ps {

/* Pushes and pulls the values of an app.
 *
 * Each function returns the number of its request at once; Wait throws the error of a request. A callback is called once, before Wait
 * returns, on a thread of the node or one that waits. It must not wait for other requests, nor throw. It is not called if the request
 * failed: then the error handle is. */
template <typename Val>
class KVWorker : public SimpleApp {
 public:
  using Callback = std::function<void()>;
  using SlicedKVs = std::vector<std::pair<bool, KVPairs<Val>>>;
  using Slicer = std::function<void(const KVPairs<Val>& send, const std::vector<Range>& ranges, SlicedKVs* sliced)>;
  using ErrorHandle = std::function<void(int timestamp, const Error& error)>;

  explicit KVWorker(int app_id, int customer_id = 0)
      : SimpleApp(app_id, customer_id, false), inner_(std::make_shared<Inner>()) {
    internal::Check(erps_worker_new(Postoffice::Get()->node(), internal::TypeOf<Val>::value, static_cast<std::uint32_t>(app_id),
                                    static_cast<std::uint32_t>(customer_id), &inner_->native));
  }

  /* Adds values to those of the servers, or gives them to their handle. Push copies its arrays. Those of ZPush are shared, and not
   * written until the request is completed. */
  int Push(const std::vector<Key>& keys, const std::vector<Val>& vals, const std::vector<int>& lens = {}, int cmd = 0,
           const Callback& callback = nullptr, int priority = 0) {
    return ZPush(SArray<Key>(keys), SArray<Val>(vals), SArray<int>(lens), cmd, callback, priority);
  }
  int ZPush(const SArray<Key>& keys, const SArray<Val>& vals, const SArray<int>& lens = {}, int cmd = 0,
            const Callback& callback = nullptr, int priority = 0) {
    return Begin(Kind::kPush, Held{keys, vals, lens, {}}, cmd, priority, callback, nullptr);
  }

  /* Reads values. If vals is empty, it gets as many as the servers have, and lens too if it is given. Otherwise each key has equally many of
   * the size of vals, or as lens says. The arrays of ZPull are received into without a copy. */
  int Pull(const std::vector<Key>& keys, std::vector<Val>* vals, std::vector<int>* lens = nullptr, int cmd = 0,
           const Callback& callback = nullptr, int priority = 0) {
    SArray<Val> out(vals->size());
    SArray<int> sizes(lens == nullptr || vals->empty() ? std::vector<int>() : *lens);
    return Begin(Kind::kPull, Held{SArray<Key>(keys), {}, sizes, out}, cmd, priority, callback,
                 [vals, lens](const SArray<Val>& found, const SArray<int>& found_lens) {
                   vals->assign(found.begin(), found.end());
                   if (lens != nullptr) lens->assign(found_lens.begin(), found_lens.end());
                 });
  }
  int ZPull(const SArray<Key>& keys, SArray<Val>* vals, SArray<int>* lens = nullptr, int cmd = 0,
            const Callback& callback = nullptr, int priority = 0) {
    SArray<int> sizes = lens == nullptr || vals->empty() ? SArray<int>() : *lens;
    return Begin(Kind::kPull, Held{keys, {}, sizes, *vals}, cmd, priority, callback,
                 [vals, lens](const SArray<Val>& found, const SArray<int>& found_lens) {
                   *vals = found;
                   if (lens != nullptr) *lens = found_lens;
                 });
  }

  /* Adds values and reads the sums, as many. lens says how many values each key has, if it is given and not empty. */
  int PushPull(const std::vector<Key>& keys, const std::vector<Val>& vals, std::vector<Val>* outs,
               std::vector<int>* lens = nullptr, int cmd = 0, const Callback& callback = nullptr, int priority = 0) {
    SArray<int> sizes(lens == nullptr ? std::vector<int>() : *lens);
    return Begin(Kind::kPushPull, Held{SArray<Key>(keys), SArray<Val>(vals), sizes, SArray<Val>(vals.size())}, cmd, priority,
                 callback, [outs](const SArray<Val>& found, const SArray<int>&) { outs->assign(found.begin(), found.end()); });
  }
  int ZPushPull(const SArray<Key>& keys, const SArray<Val>& vals, SArray<Val>* outs, SArray<int>* lens = nullptr, int cmd = 0,
                const Callback& callback = nullptr, int priority = 0) {
    SArray<int> sizes = lens == nullptr ? SArray<int>() : *lens;
    const bool fits = outs->size() == vals.size() && outs->data() != vals.data();
    SArray<Val> out = fits ? *outs : SArray<Val>(vals.size());
    return Begin(Kind::kPushPull, Held{keys, vals, sizes, out}, cmd, priority, callback,
                 [outs](const SArray<Val>& found, const SArray<int>&) { *outs = found; });
  }

  /* Waits for a request, at most for the request timeout, and throws its error. */
  void Wait(int timestamp) override {
    if (timestamp < 0) return SimpleApp::Wait(kSimple - timestamp);
    const int status = erps_wait(inner_->native, static_cast<std::uint64_t>(timestamp), -1);
    const std::string text = status == ERPS_OK ? "" : erps_last_error();
    if (std::shared_ptr<Pending> pending = inner_->Find(timestamp)) pending->Await(inner_.get(), status, text);
    if (status != ERPS_OK) throw Error(status, text);
  }

  /* A simple request: see SimpleApp. Its number is negative, so that Wait knows it. */
  int Request(int head, const std::string& body, int to) override { return kSimple - SimpleApp::Request(head, body, to); }

  /* Sets how keys are cut into a part for each server. */
  void set_slicer(const Slicer& slicer) { slicer_ = slicer; }
  void SetSlicer(const Slicer& slicer) { set_slicer(slicer); }

  /* Sets what is called, in place of a callback, if a request with one fails. By default the error goes to standard error. */
  void set_error_handle(const ErrorHandle& handle) { error_handle_ = handle; }

 private:
  static constexpr int kSimple = -2;
  enum class Kind { kPush, kPull, kPushPull };

  /* The arrays of a request. */
  struct Held {
    SArray<Key> keys;
    SArray<Val> vals;
    SArray<int> lens;
    SArray<Val> out;
    SArray<std::uint64_t> wide = internal::Widen(keys);
  };
  using Deliver = std::function<void(const SArray<Val>& found, const SArray<int>& lens)>;

  struct Pending;

  /* The worker, and its requests that are not finished. */
  struct Inner {
    erps_worker* native = nullptr;
    std::mutex mutex;
    std::map<int, std::shared_ptr<Pending>> pending;

    ~Inner() { erps_worker_free(native); }

    std::shared_ptr<Pending> Find(int timestamp) {
      std::lock_guard<std::mutex> lock(mutex);
      auto found = pending.find(timestamp);
      return found == pending.end() ? nullptr : found->second;
    }
    void Forget(int timestamp) {
      std::lock_guard<std::mutex> lock(mutex);
      pending.erase(timestamp);
    }
  };

  /* A request whose result is not delivered. With a callback, whichever comes later of the return of the call that made it and its completion
   * delivers; without one, Wait. */
  struct Pending {
    Kind kind = Kind::kPush;
    int timestamp = 0;
    std::size_t num_keys = 0;
    SArray<Val> out;
    SArray<int> lens;
    Deliver deliver;
    Callback callback;
    ErrorHandle error_handle;
    std::weak_ptr<Inner> inner;

    std::mutex mutex;
    std::condition_variable changed;
    int events = 0;
    int status = ERPS_OK;
    std::string text;
    bool finished = false;

    /* One of the two events of a request with a callback. */
    void Happen() {
      std::unique_lock<std::mutex> lock(mutex);
      if (++events < 2) return;
      lock.unlock();
      std::shared_ptr<Inner> worker = inner.lock();
      if (worker != nullptr) Finish(worker.get());
      lock.lock();
      finished = true;
      lock.unlock();
      changed.notify_all();
      if (worker != nullptr) worker->Forget(timestamp);
    }

    /* Called by Wait. */
    void Await(Inner* worker, int waited, const std::string& error) {
      std::unique_lock<std::mutex> lock(mutex);
      if (callback) {
        changed.wait(lock, [this] { return finished; });
        return;
      }
      if (finished) return;
      status = waited;
      text = error;
      Finish(worker);
      finished = true;
      worker->Forget(timestamp);
    }

    void Finish(Inner* worker) {
      erps_pulled* pulled = nullptr;
      const bool unknown = kind == Kind::kPull && out.empty();
      if (kind != Kind::kPush && status == ERPS_OK) {
        status = erps_take(worker->native, static_cast<std::uint64_t>(timestamp), &pulled);
        if (status != ERPS_OK) text = erps_last_error();
      } else if (kind != Kind::kPush) {
        erps_take(worker->native, static_cast<std::uint64_t>(timestamp), nullptr);
      }
      if (status != ERPS_OK) {
        if (!callback) return;
        if (error_handle) return error_handle(timestamp, Error(status, text));
        std::fprintf(stderr, "elasticrun: request %d failed: %s\n", timestamp, text.c_str());
        return;
      }
      if (unknown) {
        Receive(pulled);
      } else {
        erps_pulled_free(pulled);
      }
      if (deliver) deliver(out, lens);
      if (callback) callback();
    }

    /* Takes what a pull without memory has got. */
    void Receive(erps_pulled* pulled) {
      const void* values = nullptr;
      std::size_t num_bytes = 0, num_lens = 0;
      const std::uint32_t* found = nullptr;
      erps_pulled_get(pulled, &values, &num_bytes, &found, &num_lens);
      const std::size_t count = num_bytes / sizeof(Val);
      // The result is the program's alone, which may change it.
      Val* first = static_cast<Val*>(const_cast<void*>(values));
      out.reset(first, count, [pulled](Val*) { erps_pulled_free(pulled); });
      if (num_lens > 0) {
        lens.CopyFrom(reinterpret_cast<const int*>(found), num_lens);
      } else {
        lens = SArray<int>(num_keys, static_cast<int>(count / num_keys));
      }
    }
  };

  int Begin(Kind kind, Held held, int cmd, int priority, const Callback& callback, Deliver deliver) {
    auto pending = std::make_shared<Pending>();
    pending->kind = kind;
    pending->num_keys = held.keys.size();
    pending->out = held.out;
    pending->lens = held.lens;
    pending->deliver = std::move(deliver);
    pending->callback = callback;
    pending->error_handle = error_handle_;
    pending->inner = inner_;
    const std::vector<erps_part> parts = Cut(held);

    auto owner = std::make_unique<Held>(held);
    erps_request_options options = {};
    options.cmd = cmd;
    options.priority = priority;
    options.release = [](void* owner) { delete static_cast<Held*>(owner); };
    options.parts = parts.data();
    options.num_parts = parts.size();
    auto completion = std::make_unique<std::shared_ptr<Pending>>(pending);
    if (callback) {
      options.callback = Completed;
      options.user = completion.get();
    }
    options.owner = owner.release();
    std::uint64_t timestamp = 0;
    internal::Check(Send(kind, held, options, &timestamp));
    if (callback) completion.release();
    pending->timestamp = static_cast<int>(timestamp);
    if (callback || kind != Kind::kPush) {
      std::lock_guard<std::mutex> lock(inner_->mutex);
      inner_->pending.emplace(pending->timestamp, pending);
    }
    if (callback) pending->Happen();
    return pending->timestamp;
  }

  int Send(Kind kind, const Held& held, const erps_request_options& options, std::uint64_t* timestamp) {
    const auto* lens = held.lens.empty() ? nullptr : reinterpret_cast<const std::uint32_t*>(held.lens.data());
    if (lens != nullptr && held.lens.size() != held.keys.size()) {
      options.release(options.owner);
      throw Error(ERPS_BAD_REQUEST, std::to_string(held.lens.size()) + " lens for " + std::to_string(held.keys.size()) +
                                        " keys: give one len for each key, or none");
    }
    const std::uint64_t* keys = held.wide.data();
    const std::size_t num_keys = held.wide.size();
    switch (kind) {
      case Kind::kPush:
        return erps_push(inner_->native, keys, num_keys, held.vals.data(), held.vals.size(), lens, &options, timestamp);
      case Kind::kPull:
        return erps_pull(inner_->native, keys, num_keys, held.out.data(), held.out.size(), lens, &options, timestamp);
      default:
        return erps_push_pull(inner_->native, keys, num_keys, held.vals.data(), held.vals.size(), lens, held.out.data(),
                              &options, timestamp);
    }
  }

  static void Completed(int status, const char* error, void* user) noexcept {
    std::unique_ptr<std::shared_ptr<Pending>> completion(static_cast<std::shared_ptr<Pending>*>(user));
    Pending& pending = **completion;
    pending.status = status;
    pending.text = error;
    pending.Happen();
  }

  /* The parts of the program's slicer, as positions. */
  std::vector<erps_part> Cut(const Held& held) {
    std::vector<erps_part> parts;
    if (!slicer_) return parts;
    SlicedKVs sliced;
    KVPairs<Val> all;
    all.keys = held.keys;
    all.vals = held.vals;
    all.lens = held.lens;
    slicer_(all, Postoffice::Get()->GetServerKeyRanges(), &sliced);
    for (std::size_t server = 0; server < sliced.size(); ++server) {
      const SArray<Key>& keys = sliced[server].second.keys;
      if (!sliced[server].first || keys.empty()) continue;
      const Key* found = std::lower_bound(held.keys.begin(), held.keys.end(), keys.front());
      const std::size_t first = static_cast<std::size_t>(found - held.keys.begin());
      if (held.keys.size() - first < keys.size() || !std::equal(keys.begin(), keys.end(), found)) {
        throw Error(ERPS_BAD_REQUEST, "the slicer gives server " + std::to_string(server) + " keys that are no run of the request's");
      }
      parts.push_back({static_cast<std::uint32_t>(server), first, first + keys.size()});
    }
    return parts;
  }

  std::shared_ptr<Inner> inner_;
  Slicer slicer_;
  ErrorHandle error_handle_;
};

}  // namespace ps
