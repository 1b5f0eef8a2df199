"""Keep documents where others can read the disk: codes in the clear, everything else sealed."""

from .audit.auditing import Fault as Fault
from .audit.auditing import StoreAudit as StoreAudit
from .audit.auditing import audit_store as audit_store
from .audit.faiss_bits import IndexBits as IndexBits
from .audit.faiss_bits import index_bits as index_bits
from .audit.traces import Trace as Trace
from .audit.traces import find_vectors as find_vectors
from .backends.base import Backend as Backend
from .backends.database import DatabaseBackend as DatabaseBackend
from .backends.faiss_folder import FaissBackend as FaissBackend
from .backends.folder import FolderBackend as FolderBackend
from .backends.lance import LanceBackend as LanceBackend
from .documents import CodeTopics as CodeTopics
from .documents import Document as Document
from .documents import Hit as Hit
from .embeddings import PrivateEmbeddings as PrivateEmbeddings
from .release import SealedRows as SealedRows
from .sealing import new_key as new_key
from .settings import StoreSettings as StoreSettings
from .store import SealedStore as SealedStore
