/* Simple requests: a number and a string, to a node or a group. */
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "ps/base.h"
#include "ps/postoffice.h"

namespace ps {

namespace internal {

/* A simple request that is answered once. One that nobody answers is refused. */
class SimpleReply {
 public:
  explicit SimpleReply(erps_simple_request* request) : request_(request) {}
  ~SimpleReply() {
    if (erps_simple_request* request = Take()) erps_simple_refuse(request, "the handler has not answered");
  }
  SimpleReply(const SimpleReply&) = delete;
  void operator=(const SimpleReply&) = delete;

  erps_simple_request* Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    erps_simple_request* request = request_;
    request_ = nullptr;
    return request;
  }

 private:
  std::mutex mutex_;
  erps_simple_request* request_;
};

}  // namespace internal

/* A simple request or an answer. */
struct SimpleData {
  int head = 0;
  int sender = 0;
  int timestamp = 0;
  int customer_id = 0;
  std::string body;
  /* Where the answer goes. */
  std::shared_ptr<internal::SimpleReply> reply;
};

/* An app and the number of its user in this process. */
class Customer {
 public:
  Customer(int app_id, int customer_id) : app_id_(app_id), customer_id_(customer_id) {}
  int app_id() const { return app_id_; }
  int customer_id() const { return customer_id_; }

 private:
  int app_id_;
  int customer_id_;
};

/* Sends and handles simple requests. */
class SimpleApp {
 public:
  using Handle = std::function<void(const SimpleData& received, SimpleApp* app)>;

  explicit SimpleApp(int app_id, int customer_id = 0) : SimpleApp(app_id, customer_id, true) {}
  SimpleApp(const SimpleApp&) = delete;
  void operator=(const SimpleApp&) = delete;

  virtual ~SimpleApp() {
    {
      // Handlers are called until the node ends, and must not find a part of an object.
      std::lock_guard<std::mutex> lock(shared_->mutex);
      shared_->app = nullptr;
    }
    erps_simple_free(native_);
  }

  /* Sends a request to a group or the node with an id. Returns its number at once. */
  virtual int Request(int head, const std::string& body, int to) {
    Open();
    std::uint64_t timestamp = 0;
    internal::Check(
        erps_simple_request_to(native_, head, body.data(), body.size(), static_cast<std::uint32_t>(to), &timestamp));
    return static_cast<int>(timestamp);
  }

  /* Waits until all have answered. */
  virtual void Wait(int timestamp) { internal::Check(erps_simple_wait(native_, static_cast<std::uint64_t>(timestamp))); }

  /* Answers a request. */
  virtual void Response(const SimpleData& request, const std::string& body = "") {
    erps_simple_request* reply = request.reply == nullptr ? nullptr : request.reply->Take();
    if (reply == nullptr) throw Error(ERPS_INVALID, "this is no request, or it is answered already");
    internal::Check(erps_simple_respond(reply, body.data(), body.size()));
  }

  /* Sets what handles requests. Without it they are answered with nothing. */
  virtual void set_request_handle(const Handle& handle) {
    std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->on_request = std::make_shared<Handle>(handle);
  }
  /* Sets what is called for each answer. */
  virtual void set_response_handle(const Handle& handle) {
    std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->on_response = std::make_shared<Handle>(handle);
  }

  Customer* get_customer() { return &customer_; }

 protected:
  /* Registers the app at once, or at its first request. */
  SimpleApp(int app_id, int customer_id, bool open) : customer_(app_id, customer_id), shared_(new Shared) {
    shared_->app = this;
    if (open) Open();
  }

 private:
  /* What handlers use. It is never freed, as the node may call them until it ends. */
  struct Shared {
    std::mutex mutex;
    SimpleApp* app;
    std::shared_ptr<Handle> on_request;
    std::shared_ptr<Handle> on_response;
    /* Handles are called one at a time. */
    std::recursive_mutex calling;
  };

  void Open() {
    std::call_once(opened_, [this] {
      internal::Check(erps_simple_new(Postoffice::Get()->node(), static_cast<std::uint32_t>(customer_.app_id()), OnRequest,
                                      OnResponse, shared_, &native_));
    });
  }

  static SimpleData Data(const erps_message* message) {
    SimpleData data;
    data.head = message->head;
    data.sender = static_cast<int>(message->sender);
    data.timestamp = static_cast<int>(message->timestamp);
    data.body.assign(static_cast<const char*>(message->body), message->num_bytes);
    return data;
  }

  static void OnRequest(erps_simple_request* request, const erps_message* message, void* user) noexcept {
    auto reply = std::make_shared<internal::SimpleReply>(request);
    try {
      SimpleData data = Data(message);
      data.reply = reply;
      std::shared_ptr<Handle> handle;
      SimpleApp* app = Find(user, &Shared::on_request, &handle);
      if (app == nullptr || handle == nullptr || !*handle) {
        if (erps_simple_request* unanswered = reply->Take()) erps_simple_respond(unanswered, "", 0);
        return;
      }
      std::lock_guard<std::recursive_mutex> one(static_cast<Shared*>(user)->calling);
      (*handle)(data, app);
    } catch (const std::exception& error) {
      if (erps_simple_request* unanswered = reply->Take()) erps_simple_refuse(unanswered, error.what());
    }
  }

  static void OnResponse(const erps_message* message, void* user) noexcept {
    std::shared_ptr<Handle> handle;
    SimpleApp* app = Find(user, &Shared::on_response, &handle);
    if (app == nullptr || handle == nullptr || !*handle) return;
    std::lock_guard<std::recursive_mutex> one(static_cast<Shared*>(user)->calling);
    (*handle)(Data(message), app);
  }

  static SimpleApp* Find(void* user, std::shared_ptr<Handle> Shared::*which, std::shared_ptr<Handle>* handle) {
    auto* shared = static_cast<Shared*>(user);
    std::lock_guard<std::mutex> lock(shared->mutex);
    *handle = shared->*which;
    return shared->app;
  }

  Customer customer_;
  std::once_flag opened_;
  erps_simple* native_ = nullptr;
  Shared* shared_;
};

}  // namespace ps
