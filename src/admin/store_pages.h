// StorePages: the pages about the store as a whole: what it holds, and its backups.
#pragma once

#include "admin/backups.h"
#include "admin/page.h"
#include "gateway/shared.h"

namespace oncekey {

class StorePages {
 public:
  // All outlive this object.
  StorePages(GatewayShared& shared, Loop& loop, AuditTrail& audit)
      : shared_(shared), loop_(loop), audit_(audit), backups_(shared.store, shared.log) {}

  Backups& backups() { return backups_; }

  Task<PageAnswer> show();
  PageAnswer show_backup() const { return json_answer(backup_json(backups_.state())); }
  PageAnswer begin_backup(PageRequest& asked);

 private:
  GatewayShared& shared_;
  Loop& loop_;
  AuditTrail& audit_;
  Backups backups_;
};

} // namespace oncekey
