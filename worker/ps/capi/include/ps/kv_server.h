/* The server's side. */
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ps/kv_pairs.h"
#include "ps/simple_app.h"

namespace ps {

namespace internal {

/* A request that is answered once. One that nobody answers is refused. */
class Reply {
 public:
  explicit Reply(erps_request* request) : request_(request) {}
  ~Reply() {
    if (erps_request* request = Take()) erps_refuse(request, "the handler has not answered");
  }
  Reply(const Reply&) = delete;
  void operator=(const Reply&) = delete;

  erps_request* Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(request_, nullptr);
  }

 private:
  std::mutex mutex_;
  erps_request* request_;
};

}  // namespace internal

/* What a request says beside keys and values. A copy may answer it later. */
struct KVMeta {
  int cmd = 0;
  bool push = false;
  bool pull = false;
  int sender = 0;
  int timestamp = 0;
  int customer_id = 0;
  /* How many values a pull expects for each key. -1 if the server is to know, or they differ. */
  int per_key = -1;
  /* Where the answer goes. */
  std::shared_ptr<internal::Reply> reply;
};

template <typename Val>
struct KVServerDefaultHandle;

/* An app of a server. Requests that come before its handle is set are kept until then. */
template <typename Val>
class KVServer : public SimpleApp {
 public:
  using ReqHandle = std::function<void(const KVMeta& meta, const KVPairs<Val>& data, KVServer* server)>;

  explicit KVServer(int app_id) : SimpleApp(app_id, app_id), app_id_(app_id), shared_(new Shared) { shared_->server = this; }

  ~KVServer() override {
    erps_server_free(native_);
    // A handler may still run.
    std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->server = nullptr;
  }

  using SimpleApp::set_request_handle;
  using SimpleApp::Response;

  /* Sets what handles requests, one at a time, on threads of the node. It answers each once with Response, now or later. An exception in it
   * refuses the request. */
  void set_request_handle(const ReqHandle& handle) {
    {
      std::lock_guard<std::mutex> lock(shared_->mutex);
      shared_->handle = std::make_shared<ReqHandle>(handle);
    }
    std::lock_guard<std::mutex> lock(opening_);
    if (native_ != nullptr) return;
    // The library adds up as the default handle does, and faster.
    const bool sums = handle.template target<KVServerDefaultHandle<Val>>() != nullptr;
    internal::Check(erps_server_new(Postoffice::Get()->node(), internal::TypeOf<Val>::value, static_cast<std::uint32_t>(app_id_),
                                    sums ? nullptr : OnRequest, shared_, &native_));
  }

  /* Answers a request: a push without values. The arrays are shared, and not changed any more. */
  void Response(const KVMeta& meta, const KVPairs<Val>& answer = KVPairs<Val>()) {
    erps_request* request = meta.reply == nullptr ? nullptr : meta.reply->Take();
    if (request == nullptr) throw Error(ERPS_INVALID, "this is no request, or it is answered already");
    auto owner = std::make_unique<SArray<Val>>(answer.vals);
    const auto* lens = reinterpret_cast<const std::uint32_t*>(answer.lens.data());
    internal::Check(erps_respond(
        request, answer.vals.data(), answer.vals.size(), lens, answer.lens.size(),
        [](void* owner) { delete static_cast<SArray<Val>*>(owner); }, owner.release()));
  }

  /* Answers a request with an error, which Wait throws at the worker. */
  void Refuse(const KVMeta& meta, const std::string& reason) {
    erps_request* request = meta.reply == nullptr ? nullptr : meta.reply->Take();
    if (request == nullptr) throw Error(ERPS_INVALID, "this is no request, or it is answered already");
    internal::Check(erps_refuse(request, reason.c_str()));
  }

 private:
  /* What the handler uses. It is never freed, as the node may call it until it ends. */
  struct Shared {
    std::mutex mutex;
    KVServer* server = nullptr;
    std::shared_ptr<ReqHandle> handle;
    std::recursive_mutex calling;
  };

  static void OnRequest(erps_request* request, const erps_meta* meta, const erps_pairs* pairs, void* user) noexcept {
    auto reply = std::make_shared<internal::Reply>(request);
    try {
      auto* shared = static_cast<Shared*>(user);
      std::unique_lock<std::mutex> lock(shared->mutex);
      const std::shared_ptr<ReqHandle> handle = shared->handle;
      KVServer* server = shared->server;
      lock.unlock();
      if (server == nullptr || !*handle) throw Error(ERPS_INVALID, "the server has been deleted");
      KVMeta about;
      about.cmd = meta->cmd;
      about.push = meta->push != 0;
      about.pull = meta->pull != 0;
      about.sender = static_cast<int>(meta->sender);
      about.timestamp = static_cast<int>(meta->timestamp);
      about.customer_id = static_cast<int>(meta->customer);
      about.per_key = static_cast<int>(pairs->expected_per_key);
      about.reply = reply;
      // They are valid during this call only, and the handle may keep them.
      KVPairs<Val> data;
      data.keys = internal::Narrow(pairs->keys, pairs->num_keys);
      data.vals.CopyFrom(static_cast<const Val*>(pairs->values), pairs->num_values);
      const std::uint32_t* lens = about.push ? pairs->lens : pairs->expected;
      if (lens != nullptr) data.lens.CopyFrom(reinterpret_cast<const int*>(lens), pairs->num_keys);
      std::lock_guard<std::recursive_mutex> one(shared->calling);
      (*handle)(about, data, server);
    } catch (const std::exception& error) {
      if (erps_request* unanswered = reply->Take()) erps_refuse(unanswered, error.what());
    }
  }

  int app_id_;
  std::mutex opening_;
  erps_server* native_ = nullptr;
  Shared* shared_;
};

/* Adds up pushed values. Given to KVServer::set_request_handle, the library does it. A handle of a program may call it too. */
template <typename Val>
struct KVServerDefaultHandle {
  void operator()(const KVMeta& meta, const KVPairs<Val>& data, KVServer<Val>* server) {
    KVPairs<Val> answer;
    std::size_t next = 0;
    const std::size_t per_key = meta.push ? data.vals.size() / data.keys.size() : static_cast<std::size_t>(std::max(meta.per_key, 0));
    for (std::size_t index = 0; index < data.keys.size(); ++index) {
      std::vector<Val>& stored = store[data.keys[index]];
      const std::size_t count = data.lens.empty() ? per_key : static_cast<std::size_t>(data.lens[index]);
      if (stored.empty()) stored.resize(count);
      if (meta.push) {
        if (stored.size() != count) throw Error(ERPS_BAD_REQUEST, "a key has another number of values here");
        for (std::size_t value = 0; value < count; ++value) stored[value] += data.vals[next++];
      }
      if (meta.pull) {
        for (const Val& value : stored) answer.vals.push_back(value);
        answer.lens.push_back(static_cast<int>(stored.size()));
      }
    }
    server->Response(meta, answer);
  }

  std::unordered_map<Key, std::vector<Val>> store;
};

}  // namespace ps
