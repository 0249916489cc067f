/* The node of this process. */
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "ps/base.h"
#include "ps/range.h"

namespace ps {

/* The node of this process: one for all customers. */
class Postoffice {
 public:
  static Postoffice* Get() {
    static Postoffice node;
    return &node;
  }

  /* Waits until all nodes of a group are here. */
  void Barrier(int customer_id, int group) {
    (void)customer_id;
    internal::Check(erps_barrier(node(), static_cast<std::uint32_t>(group)));
  }

  /* Before the start, these are what the variables say. */
  int num_workers() const { return Count("DMLC_NUM_WORKER", erps_num_workers(node_)); }
  int num_servers() const { return Count("DMLC_NUM_SERVER", erps_num_servers(node_)); }
  bool is_worker() const { return HasRole(ERPS_WORKERS, "worker"); }
  bool is_server() const { return HasRole(ERPS_SERVERS, "server"); }
  bool is_scheduler() const { return HasRole(ERPS_SCHEDULER, "scheduler"); }

  int my_rank() const { return static_cast<int>(erps_my_rank(node())); }
  int my_id() const { return static_cast<int>(erps_my_id(node())); }
  bool is_recovery() const { return erps_is_recovery(node()) != 0; }
  int verbose() const { return Number("PS_VERBOSE"); }

  static int WorkerRankToID(int rank) { return 9 + 2 * rank; }
  static int ServerRankToID(int rank) { return 8 + 2 * rank; }
  static int IDtoRank(int id) { return id < 8 ? 0 : (id - 8) / 2; }

  /* The ids of a group, ascending, or this id. */
  std::vector<int> GetNodeIDs(int group) const {
    if (group >= 8) return {group};
    std::vector<int> ids;
    if (group & kScheduler) ids.push_back(kScheduler);
    const int servers = num_servers(), workers = num_workers();
    for (int rank = 0; rank < servers || rank < workers; ++rank) {
      if ((group & kServerGroup) && rank < servers) ids.push_back(ServerRankToID(rank));
      if ((group & kWorkerGroup) && rank < workers) ids.push_back(WorkerRankToID(rank));
    }
    return ids;
  }

  /* The keys of each server. */
  const std::vector<Range>& GetServerKeyRanges() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (int rank = static_cast<int>(ranges_.size()); rank < num_servers(); ++rank) {
      std::uint64_t first = 0, last = 0;
      internal::Check(erps_key_range(node(), static_cast<std::uint32_t>(rank), &first, &last));
      // The first key that is not below the first one of the server.
      const std::uint64_t low = (std::uint64_t{1} << internal::kKeyShift) - 1;
      const bool ends = last == std::numeric_limits<std::uint64_t>::max();
      ranges_.emplace_back(internal::Narrow(first + low), ends ? kMaxKey : std::uint64_t{internal::Narrow(last)} + 1);
    }
    return ranges_;
  }

  /* The nodes that this one knows to be dead. The time after which a silent one is dead is PS_HEARTBEAT_TIMEOUT. */
  std::vector<int> GetDeadNodes(int seconds = 60) const {
    (void)seconds;
    std::size_t count = static_cast<std::size_t>(num_servers() + num_workers()) + 1;
    std::vector<std::uint32_t> ids(count);
    internal::Check(erps_dead_nodes(node(), ids.data(), &count));
    ids.resize(std::min(ids.size(), count));
    return std::vector<int>(ids.begin(), ids.end());
  }

  void RegisterExitCallback(const std::function<void()>& callback) { exit_callback_ = callback; }

  /* See ps::Start. Each customer of this process calls both; the first one starts the node, and the last one ends it. */
  void Start(bool barrier) {
    std::lock_guard<std::mutex> lock(starting_);
    if (node_ == nullptr) internal::Check(erps_start(barrier, &node_));
    ++customers_;
  }
  void Finalize(bool barrier) {
    std::lock_guard<std::mutex> lock(starting_);
    if (node_ == nullptr || --customers_ > 0) return;
    internal::Check(erps_finalize(node_, barrier));
    if (exit_callback_) exit_callback_();
  }

  /* The node. */
  const erps_node* node() const {
    if (node_ == nullptr) throw Error(ERPS_INVALID, "this process has no node: call ps::Start first");
    return node_;
  }

 private:
  Postoffice() = default;
  Postoffice(const Postoffice&) = delete;
  void operator=(const Postoffice&) = delete;

  static int Number(const char* variable) {
    const char* value = std::getenv(variable);
    return value == nullptr ? 0 : std::atoi(value);
  }
  int Count(const char* variable, std::uint32_t known) const {
    return node_ == nullptr ? Number(variable) : static_cast<int>(known);
  }
  bool HasRole(std::uint32_t role, const char* name) const {
    if (node_ != nullptr) return erps_my_role(node_) == role;
    const char* value = std::getenv("DMLC_ROLE");
    return value != nullptr && std::string(value) == name;
  }

  /* It is not freed: workers and servers of the program may live longer than this object. */
  erps_node* node_ = nullptr;
  int customers_ = 0;
  std::mutex starting_;
  std::mutex mutex_;
  std::vector<Range> ranges_;
  std::function<void()> exit_callback_;
};

}  // namespace ps
