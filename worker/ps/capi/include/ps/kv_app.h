/* Keys and values: workers push and pull them, servers keep them. */
#pragma once

#include "ps/kv_server.h"
#include "ps/kv_worker.h"
