"""placeholder replaced below"""
__version__ = "0.2.0"
