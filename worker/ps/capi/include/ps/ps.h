/* The parameter server of elasticrun for C++17, with the names that programs for ps-lite use: docs/migrate-from-ps-lite.md.
 *
 * Link with -lelasticrun_ps_c. Errors are exceptions of the class ps::Error.
 */
#pragma once

#include "ps/base.h"
#include "ps/kv_app.h"
#include "ps/postoffice.h"
#include "ps/simple_app.h"

namespace ps {

inline int NumWorkers() { return Postoffice::Get()->num_workers(); }
inline int NumServers() { return Postoffice::Get()->num_servers(); }
inline bool IsWorker() { return Postoffice::Get()->is_worker(); }
inline bool IsServer() { return Postoffice::Get()->is_server(); }
inline bool IsScheduler() { return Postoffice::Get()->is_scheduler(); }
/* The rank among the nodes of the same role. */
inline int MyRank() { return Postoffice::Get()->my_rank(); }

/* Starts the node of this process, and waits in a barrier until all nodes are there. */
inline void Start(int customer_id = 0, const char* argv0 = nullptr) {
  (void)customer_id, (void)argv0;
  Postoffice::Get()->Start(true);
}

/* Starts the node, and waits until all have registered, without a barrier. */
inline void StartAsync(int customer_id = 0, const char* argv0 = nullptr) {
  (void)customer_id, (void)argv0;
  Postoffice::Get()->Start(false);
}

/* Ends the node, after a barrier of all nodes or without. With several customers the last one does it. */
inline void Finalize(int customer_id = 0, bool do_barrier = true) {
  (void)customer_id;
  Postoffice::Get()->Finalize(do_barrier);
}

/* Has a function called at the end of Finalize. */
inline void RegisterExitCallback(const std::function<void()>& callback) { Postoffice::Get()->RegisterExitCallback(callback); }

}  // namespace ps
