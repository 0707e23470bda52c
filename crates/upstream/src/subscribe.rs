//! Resource subscriptions: who watches what, and how a server of each era is asked to notify of changes.

mod resource_subscriber;
mod subscription_listener;
mod subscriptions;

pub(crate) use resource_subscriber::ResourceSubscriber;
pub(crate) use subscription_listener::{ListenEvent, SubscriptionListener};
pub(crate) use subscriptions::ResourceSubscriptions;
